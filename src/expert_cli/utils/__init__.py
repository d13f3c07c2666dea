"""What any Python project could use goes in and out here: files, processes, texts, chat templates in a sandbox. Knows
neither manifests nor models.
"""
