"""The state of a consumer whose log the first version wrote is read, and written anew.

The files below are those of that version, after a kill: deliveries of 1 to 3, a reset to 100, three
commits of three deliveries each, and two acks, each committed by itself.
"""

import base64
import zlib
from typing import Final

import pytest

from natsd.store.consumer.consumer_state import ConsumerState, Pending, SequencePair
from natsd.store.disk.doubled_file import read_file
from tests.store.consumer.test_consumer_store import OBS, Files, Host, deliver, disk_of, reopen
from tests.store.faulty_disk import PowerLoss

LOG: Final = (
    "c-r%G3<-AecM4`?U|?VZVsqYkYJBR#sjLk6!ICP)+wL>nTo@S`8JJX9UNb_)^Pu#GwGa`I{QnhsN0^}E`A~YsMuhy|"
    "+z>ZrsCWUCZrF;Dr=|HIfAY-b&f|cJPus#;-XV~C1*9H?S%J!Oq%J1lk_VZ;%8<E+1u9<wr4L*|*k335YXvMkE1~p?"
    "8wh!Zny0(jpyE|fdcqxqJT1)!>FZdN{*xQ#zlRZj1yecAk^TR2$Hhck@*wjM?YVTH9V*`hr7!$O*l)ZfX(cTDnxXWL"
    "{|NahZCZOcq2eu2dI2*NT%MNZgZzJW-`(eYQ1J+_snag+`rC=@fAK=aAYAewQ;Y<Rs?gIP3=onB*{}A>B$*$|e|fRV"
    "VEM_?SBzk{L+n4dgqItaJjmRmfBQe8$3L?D_~b$2UH!ZV1)%&VAFs}Tne$c$*?xnT`g>UA0sm~9+5"
)
CHECKPOINT: Final = (
    "c-r%G3<-AecMiy9U|?VZVqu2-q+<Q@{G#mCBK_i$#FA9Klq8S@2$=KEQ{z(?PGyDi8KE>x9tKhf@L_=EkMoL~_ipPm"
    "jDk@x3P!;w7zLwX6pVsVFbYP&C>RB!fR?~-Ap8Gs3Zy6GB`{_K0KQKlS^"
)
DELIVERED: Final = (110, 111, 112, 120, 121, 122, 130, 131, 132)
ACKED: Final = {111, 121}
LOG_BYTES: Final = 1088
"""Length of the log without the zeros behind it."""


def old_files() -> Files:
    log = zlib.decompress(base64.b85decode(LOG)).ljust(4096, b"\0")
    checkpoint = zlib.decompress(base64.b85decode(CHECKPOINT)).ljust(8192, b"\0")
    return {"000002.log": log, "state.db": checkpoint, "state.db.copy": checkpoint}


def expected_state() -> ConsumerState:
    pending = {
        stream: Pending(number, stream * 1000)
        for number, stream in enumerate(DELIVERED, 1)
        if stream not in ACKED
    }
    return ConsumerState(SequencePair(9, 132), SequencePair(0, 100), pending, {})


async def test_it_is_converted_when_it_is_opened() -> None:
    disk = disk_of(old_files())
    store = await reopen(Host(disk))
    assert (store.state(), store.recovery.damage) == (expected_state(), [])
    assert store.recovery.set_aside is None
    assert disk.listdir(OBS) == ["000003.log", "state.db", "state.db.copy"]
    deliver(store, 140)
    await store.synced()
    state = store.state()
    after = await reopen(Host(disk.crash()))
    assert (after.state(), after.recovery.damage) == (state, [])


async def test_a_power_cut_during_the_conversion_costs_nothing() -> None:
    is_cut = True
    calls = 0
    while is_cut:
        disk = disk_of(old_files())
        for name in disk.listdir(OBS):
            disk.open(OBS / name).fsync()
        disk.sync_dir(OBS)
        disk.power_fails_at = calls
        try:
            await reopen(Host(disk))
            is_cut = False
        except PowerLoss:
            pass
        found = await reopen(Host(disk.crash(calls)))
        assert found.state() == expected_state()
        calls += 1
    assert calls > 10


@pytest.mark.parametrize("size", [LOG_BYTES, LOG_BYTES + 3])
async def test_a_torn_end_is_dropped(size: int) -> None:
    files = old_files()
    torn = files["000002.log"][:size] + b"\1" * 300
    store = await reopen(Host(disk_of(files | {"000002.log": torn})))
    assert (store.state(), store.recovery.damage) == (expected_state(), [])


async def test_damage_is_told_and_skips_no_message() -> None:
    files = old_files()
    log = files["000002.log"]
    for at in range(64, LOG_BYTES):
        damaged = log[:at] + bytes([log[at] ^ 4]) + log[at + 1 :]
        disk = disk_of(files | {"000002.log": damaged})
        store = await reopen(Host(disk))
        found = store.state()
        if store.recovery.damage:
            assert store.recovery.set_aside is not None
            assert read_file(disk, store.recovery.set_aside) == damaged
        else:
            assert found == expected_state(), "a parity slot, or one of two marks"
        behind = {stream for stream in DELIVERED if stream > found.delivered.stream}
        assert set(DELIVERED) - set(found.pending) <= ACKED | behind
