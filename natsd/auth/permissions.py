"""Compiled rules from the permissions in the settings."""

from datetime import timedelta

from natsd.config.auth_options import PermissionsOptions
from natsd.core.routing import PermissionRules

_SECOND = timedelta(seconds=1)


def compile_permissions(permissions: PermissionsOptions) -> PermissionRules:
    """Return the compiled rules. Raises InvalidSubject for a rule that is not one.

    With `allow_responses` and without rules on what may be published, only responses may. As in
    nats-server, an empty list of allowed subscriptions allows all.
    """
    responses = permissions.allow_responses
    publish_allow = permissions.publish.allow
    if responses is not None and publish_allow is None:
        publish_allow = ()
    return PermissionRules(
        publish_allow=publish_allow,
        publish_deny=permissions.publish.deny,
        subscribe_allow=permissions.subscribe.allow or None,
        subscribe_deny=permissions.subscribe.deny,
        responses_max=0 if responses is None else responses.max_msgs,
        responses_ttl_ns=0 if responses is None else round(responses.expires / _SECOND * 1e9),
    )
