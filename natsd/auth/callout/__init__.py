"""Auth callout: a service that clients of the server itself provide decides over logins."""
