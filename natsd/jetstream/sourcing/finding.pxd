"""Empty: finding.pyx has nothing for compiled callers."""
