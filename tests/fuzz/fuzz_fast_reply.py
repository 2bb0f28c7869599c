"""Reply subjects of fast batches (ADR-50): any bytes are read as the plain reader reads them.

Input: a reply subject. The parsed fields give the same subject again, which is parsed alike.
"""

from natsd.jetstream.stream.publishing import fast_reply
from tests.jetstream.stream.test_fast_reply import plain_reply

MODULES = ["natsd.jetstream.stream.publishing"]
SEEDS = [
    b"",
    b".$FI",
    b"_INBOX.a.b.id.100.ok.7.1.$FI",
    b"_INBOX.id.0.fail.1.0.$FI",
    b"_INBOX.id.70000.fail.2.2.$FI",
    b"i..010.ok.18446744073709551614.4.$FI",
    b"i.id.99999999999999999999.ok.18446744073709551616.3.$FI",
    b"i.id.1.fail.1.5.$FI",
    b"id.0.fail.1.0.$FI",
]


def check(data: bytes) -> None:
    for reply in (data, data + b".$FI"):
        found = fast_reply(reply)
        assert found == plain_reply(reply)
        if found is not None:
            batch_id, flow, sequence, gaps_allowed, operation = found
            gaps = b"ok" if gaps_allowed else b"fail"
            again = b"i.%b.%d.%b.%d.%d.$FI" % (batch_id, flow, gaps, sequence, operation)
            assert fast_reply(again) == found
