"""Spider and other public question sets, as rows and cases of the experts."""
