"""Brokers that check permissions, and the permissions themselves."""

from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.properties import ADMIN_USER

LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY


AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{ADMIN_USER}",
}
"""Of brokers and controllers that ask for permissions; only the tests' own login has all."""


def rule(
    cluster: LocalKafka,
    user: str,
    kind: ResourceType,
    name: str,
    *rights: AclOperation,
    pattern: ResourcePatternType = LITERAL,
    permission: AclPermissionType = ALLOW,
) -> None:
    """Allow or deny somebody something; brokers hear of it soon after."""
    options: dict[str, Any] = {**cluster.client_options, "bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    rules = [AclBinding(kind, name, pattern, f"User:{user}", "*", right, permission) for right in rights]
    admin = AdminClient(options)  # answers end with it
    for done in admin.create_acls(rules, request_timeout=20).values():
        done.result(30)
