"""The in-memory byte trie, against its document and against a dict."""
