"""What any Python project could use goes in and out here: files, processes, texts. Knows neither manifests nor models."""
