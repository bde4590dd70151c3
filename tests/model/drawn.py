"""The entries of schedule files that hypothesis draws."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

causes = st.sampled_from([(), (), ("user", "excluded", "dependency", "coalesced")])
policies = st.sampled_from(
    ["allow", "skip", "queue", "queue_one", "cancel_previous", "terminate_previous"]
)
catch_ups = st.fixed_dictionaries(
    {},
    optional={
        "policy": st.sampled_from(["latest", "all", "none"]),
        "max": st.sampled_from([1, 3, 20]),
        "order": st.sampled_from(["oldest", "newest"]),
        "rate": st.sampled_from(["1/1s", "5/1s"]),
        "window": st.sampled_from(["30s", "5m", "24h"]),
        "pause": st.sampled_from(["none", "latest", "all"]),
        "deploy": st.sampled_from(["none", "latest", "all"]),
    },
)
whens = st.one_of(
    st.builds(
        lambda every, part: {"everyMs": every, **({"offsetMs": every * part // 4} if part else {})},
        st.sampled_from([10_000, 10_000, 20_000, 60_000, 61_000, 300_000, 3_600_000, 86_400_000]),
        st.integers(0, 3),
    ),
    st.builds(
        lambda cron, timezone: {"cron": cron, "timezone": timezone},
        st.sampled_from(
            ["* * * * *", "*/5 * * * *", "30 */2 * * *", "0 10 * * *", "0 10 * * MON-FRI"]
        ),
        st.sampled_from(["UTC", "Asia/Kolkata", "America/Sao_Paulo"]),
    ),
    st.sampled_from([{"at": "2026-11-18T10:00:00Z"}, {"at": "2026-11-18T09:58:30Z"}]),
)
overlaps = st.one_of(
    policies.map(lambda policy: {"overlap": policy}),
    st.sampled_from([1, 3]).map(lambda most: {"overlap": "queue", "maxQueued": most}),
    st.just({"overlap": "cancel_previous", "cancelGrace": "20s"}),
    st.builds(
        lambda policy, most: {**policy, "maxConcurrentRuns": most},
        st.sampled_from([{}, *({"overlap": name} for name in ("queue", "queue_one", "skip"))]),
        st.integers(1, 3),
    ),
)


@st.composite
def entries(draw: Any) -> dict[str, Any]:
    entry = {**draw(whens), **draw(overlaps)}
    if catch_up := draw(catch_ups):
        entry["catchUp"] = catch_up
    more = draw(st.integers(0, 11))
    if more == 0:
        entry["enabled"] = False
    if more in {1, 2} and "at" not in entry:
        entry["exclude"] = ["SAT", "SUN", "2026-11-18T10:00:00Z..2026-11-18T10:10:00Z"]
        if "everyMs" in entry:
            entry["timezone"] = "UTC"
    if more == 3:
        entry["spread"] = "40s"
    if more == 4:
        entry["grace"] = "5s"
    if more == 5:
        entry["firstFire"] = draw(st.sampled_from(["now", "next"]))
    return entry
