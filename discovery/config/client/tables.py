"""The decided fate of every client option: passed on, renamed, accepted without effect, or refused with a remedy.

Names are without the `kafka.` prefix. A name in no table is a typing mistake.
"""

SAME = frozenset({
    "broker.address.family", "broker.address.ttl", "check.crcs", "client.dns.lookup", "client.id", "client.rack",
    "connections.max.idle.ms", "debug", "enable.sasl.oauthbearer.unsecure.jwt", "enable.ssl.certificate.verification",
    "fetch.error.backoff.ms", "fetch.max.bytes", "fetch.min.bytes", "fetch.queue.backoff.ms", "fetch.wait.max.ms",
    "group.id", "https.ca.location", "https.ca.pem", "isolation.level", "max.partition.fetch.bytes",
    "message.max.bytes", "metadata.max.age.ms", "queued.max.messages.kbytes", "queued.min.messages",
    "receive.message.max.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retry.backoff.max.ms",
    "retry.backoff.ms", "sasl.mechanism", "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud", "sasl.oauthbearer.assertion.claim.exp.seconds",
    "sasl.oauthbearer.assertion.claim.iss", "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.assertion.claim.nbf.seconds", "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.file", "sasl.oauthbearer.assertion.jwt.template.file",
    "sasl.oauthbearer.assertion.private.key.file", "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem", "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config", "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.grant.type", "sasl.oauthbearer.metadata.authentication.type", "sasl.oauthbearer.method",
    "sasl.oauthbearer.scope", "sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.token.endpoint.url",
    "sasl.password", "sasl.username", "security.protocol", "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable", "socket.nagle.disable", "socket.receive.buffer.bytes", "socket.send.buffer.bytes",
    "socket.timeout.ms", "ssl.ca.certificate.stores", "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location",
    "ssl.certificate.pem", "ssl.crl.location", "ssl.curves.list", "ssl.endpoint.identification.algorithm",
    "ssl.key.location", "ssl.key.password", "ssl.key.pem", "ssl.sigalgs.list", "topic.metadata.refresh.interval.ms",
})  # fmt: skip
"""Known to librdkafka under the same name, with the same meaning (JVM names and librdkafka's own)."""

RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.assertion.template.file": "sasl.oauthbearer.assertion.jwt.template.file",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}

STORES = frozenset({
    "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location", "ssl.keystore.password",
    "ssl.keystore.type", "ssl.truststore.certificates", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.type",
})  # fmt: skip
"""JVM key and trust stores; translated together."""

COMPOSED = frozenset({
    "sasl.jaas.config", "sasl.login.callback.handler.class", "sasl.oauthbearer.jwt.retriever.class",
    "default.api.timeout.ms", "ssl.cipher.suites", "ssl.enabled.protocols",
})  # fmt: skip
"""Translated together with others, or value by value."""

_LOOP = "the discovery loop follows brokers and partitions itself"
_GROUP = "partitions are assigned by Spark, not by a consumer group"
_METRICS = "metrics of the JVM client do not exist here"
_TOKEN = "librdkafka renews logins by itself"  # noqa: S105 - a sentence
_JVM_TLS = "OpenSSL chooses this by itself"
PROTOCOLS = "TLS 1.2 and 1.3 are offered and the broker chooses; restrict it there"
WITHOUT_EFFECT = {
    "allow.auto.create.topics": "asking for a topic never creates it here",
    "auto.commit.interval.ms": "offsets live in the checkpoint",
    "auto.include.jmx.reporter": _METRICS,
    "enable.metrics.push": _METRICS,
    "exclude.internal.topics": "internal topics are read only when subscribed by name",
    "group.instance.id": _GROUP,
    "group.protocol": _GROUP,
    "group.remote.assignor": _GROUP,
    "heartbeat.interval.ms": _GROUP,
    "internal.leave.group.on.close": _GROUP,
    "max.poll.interval.ms": _GROUP,
    "max.poll.records": "batches are cut by size and by maxOffsetsPerTrigger",
    "metadata.recovery.rebootstrap.trigger.ms": _LOOP,
    "metadata.recovery.strategy": _LOOP,
    "metric.reporters": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "partition.assignment.strategy": _GROUP,
    "sasl.login.connect.timeout.ms": _TOKEN,
    "sasl.login.read.timeout.ms": _TOKEN,
    "sasl.login.refresh.buffer.seconds": _TOKEN,
    "sasl.login.refresh.min.period.seconds": _TOKEN,
    "sasl.login.refresh.window.factor": _TOKEN,
    "sasl.login.refresh.window.jitter": _TOKEN,
    "sasl.login.retry.backoff.max.ms": _TOKEN,
    "sasl.login.retry.backoff.ms": _TOKEN,
    "sasl.oauthbearer.clock.skew.seconds": "tokens are checked by the broker",
    "sasl.oauthbearer.expected.audience": "tokens are checked by the broker",
    "sasl.oauthbearer.expected.issuer": "tokens are checked by the broker",
    "sasl.oauthbearer.header.urlencode": "librdkafka writes the header as the standard says",
    "sasl.oauthbearer.jwt.validator.class": "tokens are checked by the broker",
    "session.timeout.ms": _GROUP,
    "socket.connection.setup.timeout.max.ms": "attempts do not grow; socket.connection.setup.timeout.ms is the limit",
    "ssl.keymanager.algorithm": _JVM_TLS,
    "ssl.protocol": PROTOCOLS,
    "ssl.secure.random.implementation": _JVM_TLS,
    "ssl.trustmanager.algorithm": _JVM_TLS,
}
"""Options of the JVM client whose purpose is served otherwise; the value says by what."""

_BYTES = "keys and values are bytes; cast them in the DataFrame"
_CLASSES = "classes of the JVM client cannot run here; remove it"
_KERBEROS = "Kerberos is not in this build of librdkafka; use PLAIN, SCRAM or OAUTHBEARER"
REFUSED = {
    "auto.offset.reset": "set startingOffsets to earliest, latest or offsets; failOnDataLoss decides on lost ranges",
    "bootstrap.servers": "give it to the source as kafka.bootstrap.servers, not among the client options",
    "config.providers": _CLASSES,
    "enable.auto.commit": "offsets live in the checkpoint of the query; remove it",
    "interceptor.classes": _CLASSES,
    "key.deserializer": _BYTES,
    "key.serializer": _BYTES,
    "sasl.client.callback.handler.class": _CLASSES,
    "sasl.kerberos.keytab": _KERBEROS,
    "sasl.kerberos.kinit.cmd": _KERBEROS,
    "sasl.kerberos.min.time.before.relogin": _KERBEROS,
    "sasl.kerberos.principal": _KERBEROS,
    "sasl.kerberos.service.name": _KERBEROS,
    "sasl.kerberos.ticket.renew.jitter": _KERBEROS,
    "sasl.kerberos.ticket.renew.window.factor": _KERBEROS,
    "sasl.login.class": _CLASSES,
    "sasl.oauthbearer.jwks.endpoint.url": "it is an option of brokers; remove it",
    "security.providers": _CLASSES,
    "ssl.engine.factory.class": _CLASSES,
    "ssl.provider": _CLASSES,
    "value.deserializer": _BYTES,
    "value.serializer": _BYTES,
}
"""What cannot be honoured and must not be ignored; the value is the remedy."""

CHOICES = {
    "security.protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "sasl.mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
    "isolation.level": ("read_uncommitted", "read_committed"),
    "client.dns.lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "broker.address.family": ("any", "v4", "v6"),
}
"""Closed sets, by librdkafka's name; compared without case."""

MECHANISM_HINTS = {
    "GSSAPI": _KERBEROS,
    "AWS_MSK_IAM": "IAM logins need a class of the JVM; MSK also takes SCRAM-SHA-512 and client certificates",
}
TLS_13_SUITES = ("TLS_AES_", "TLS_CHACHA20_POLY1305_SHA256", "TLS_EMPTY_RENEGOTIATION")
"""Beginnings of names that OpenSSL does not take among the others."""

_MAX_INT = 2_147_483_647
RANGES = {
    "default.api.timeout.ms": (1_000, 3_600_000),
    "broker.address.ttl": (0, 86_400_000),
    "connections.max.idle.ms": (0, _MAX_INT),
    "fetch.error.backoff.ms": (0, 300_000),
    "fetch.max.bytes": (1_000_000, 2_147_483_135),
    "fetch.min.bytes": (0, _MAX_INT),
    "fetch.queue.backoff.ms": (0, 300_000),
    "fetch.wait.max.ms": (0, 300_000),
    "max.partition.fetch.bytes": (1, 1_000_000_000),
    "message.max.bytes": (1_000, 1_000_000_000),
    "metadata.max.age.ms": (1, 86_400_000),
    "queued.max.messages.kbytes": (1, 2_097_151),
    "queued.min.messages": (1, 10_000_000),
    "receive.message.max.bytes": (1_000, _MAX_INT),
    "reconnect.backoff.max.ms": (0, 3_600_000),
    "reconnect.backoff.ms": (0, 3_600_000),
    "retry.backoff.max.ms": (1, 300_000),
    "retry.backoff.ms": (1, 300_000),
    "socket.connection.setup.timeout.ms": (1_000, _MAX_INT),
    "socket.receive.buffer.bytes": (0, 100_000_000),
    "socket.send.buffer.bytes": (0, 100_000_000),
    "socket.timeout.ms": (10, 300_000),
    "topic.metadata.refresh.interval.ms": (-1, 3_600_000),
}
"""Whole numbers, by librdkafka's name: its own limits (`fetch.max.bytes` must reach `message.max.bytes`)."""

CONSUMER_ONLY = frozenset({
    "check.crcs", "fetch.error.backoff.ms", "fetch.max.bytes", "fetch.min.bytes", "fetch.queue.backoff.ms",
    "fetch.wait.max.ms", "group.id", "isolation.level", "max.partition.fetch.bytes", "queued.max.messages.kbytes",
    "queued.min.messages",
})  # fmt: skip
"""Makes a client that does not consume complain in its log."""
