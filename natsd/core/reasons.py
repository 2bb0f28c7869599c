"""Closed reasons and -ERR texts, which clients and monitoring compare literally.

Source: nats-server's `ClosedState.String` (server/monitor.go), its errors in server/errors.go and
its -ERR texts in server/client.go.
"""

import enum


class ClosedReason(enum.Enum):
    """Reason why a connection was closed, as `connz` and disconnect events show it."""

    CLIENT_CLOSED = "Client Closed"
    AUTHENTICATION_TIMEOUT = "Authentication Timeout"
    AUTHENTICATION_FAILURE = "Authentication Failure"
    TLS_HANDSHAKE_FAILURE = "TLS Handshake Failure"
    SLOW_CONSUMER_PENDING_BYTES = "Slow Consumer (Pending Bytes)"
    SLOW_CONSUMER_WRITE_DEADLINE = "Slow Consumer (Write Deadline)"
    WRITE_ERROR = "Write Error"
    READ_ERROR = "Read Error"
    PARSE_ERROR = "Parse Error"
    STALE_CONNECTION = "Stale Connection"
    PROTOCOL_VIOLATION = "Protocol Violation"
    BAD_CLIENT_PROTOCOL_VERSION = "Bad Client Protocol Version"
    INCORRECT_PORT = "Incorrect Port"
    MAXIMUM_CONNECTIONS_EXCEEDED = "Maximum Connections Exceeded"
    MAXIMUM_ACCOUNT_CONNECTIONS_EXCEEDED = "Maximum Account Connections Exceeded"
    MAXIMUM_MESSAGE_PAYLOAD_EXCEEDED = "Maximum Message Payload Exceeded"
    MAXIMUM_CONTROL_LINE_EXCEEDED = "Maximum Control Line Exceeded"
    MAXIMUM_SUBSCRIPTIONS_EXCEEDED = "Maximum Subscriptions Exceeded"
    DUPLICATE_ROUTE = "Duplicate Route"
    ROUTE_REMOVED = "Route Removed"
    AUTHENTICATION_EXPIRED = "Authentication Expired"
    WRONG_GATEWAY = "Wrong Gateway"
    MISSING_ACCOUNT = "Missing Account"
    CREDENTIALS_REVOKED = "Credentials Revoked"
    PROXY_NOT_TRUSTED = "Proxy Not Trusted"
    PROXY_REQUIRED = "Proxy Required"
    SERVER_SHUTDOWN = "Server Shutdown"
    INTERNAL_CLIENT = "Internal Client"
    NO_RESPONDERS_REQUIRES_HEADERS = "No Responders Requires Headers"
    CLUSTER_NAME_CONFLICT = "Cluster Name Conflict"
    DUPLICATE_SERVER_NAME = "Duplicate Server Name"
    KICKED = "Kicked"


class ErrorText:
    """Texts between the quotes of `-ERR '...'`; `{}` is a subject or queue name."""

    UNKNOWN_PROTOCOL_OPERATION = "Unknown Protocol Operation"
    MAXIMUM_CONTROL_LINE = "maximum control line exceeded"
    MAXIMUM_PAYLOAD = "Maximum Payload Violation"
    MAXIMUM_CONNECTIONS = "maximum connections exceeded"
    MAXIMUM_ACCOUNT_CONNECTIONS = "maximum account active connections exceeded"
    MAXIMUM_SUBSCRIPTIONS = "maximum subscriptions exceeded"
    AUTHORIZATION_VIOLATION = "Authorization Violation"
    AUTHENTICATION_TIMEOUT = "Authentication Timeout"
    USER_AUTHENTICATION_EXPIRED = "User Authentication Expired"
    ACCOUNT_AUTHENTICATION_EXPIRED = "Account Authentication Expired"
    USER_AUTHENTICATION_REVOKED = "User Authentication Revoked"
    FAILED_ACCOUNT_REGISTRATION = "Failed Account Registration"
    STALE_CONNECTION = "Stale Connection"
    TLS_REQUIRED = "Secure Connection - TLS Required"
    TLS_THROTTLED = "Connection throttling is active. Please try again later."
    CLIENT_ON_ROUTE_PORT = "attempted to connect to route port"
    INVALID_CLIENT_PROTOCOL = "invalid client protocol"
    NO_RESPONDERS_REQUIRES_HEADERS = "no responders requires headers support"
    INVALID_PUBLISH_SUBJECT = "Invalid Publish Subject"
    INVALID_SUBJECT = "Invalid Subject"
    PUBLISH_VIOLATION = 'Permissions Violation for Publish to "{}"'
    PUBLISH_REPLY_VIOLATION = 'Permissions Violation for Publish with Reply of "{}"'
    SUBSCRIPTION_VIOLATION = 'Permissions Violation for Subscription to "{}"'
    SUBSCRIPTION_QUEUE_VIOLATION = 'Permissions Violation for Subscription to "{}" using queue "{}"'
    SUBSCRIPTION_REMOVED = '{} (sid "{}")'
    SUBSCRIPTION_TOO_MANY_TOKENS = 'Permissions Violation for Subscription to "{}", too many tokens'
