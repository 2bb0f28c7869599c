"""See finding.pyx; nothing of it is for compiled callers."""
