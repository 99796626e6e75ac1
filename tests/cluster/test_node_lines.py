"""What a node sends is found among anything else, and bounded."""

from __future__ import annotations

import os
import random

from gpuwatch.fleet.cluster.node_protocol import Frame, NodeDecoder, encode_frame


def test_a_document_survives_labels_banners_and_any_chunks() -> None:
    data = random.Random(1).randbytes(20_000)
    sent = encode_frame("hello", b"{}") + encode_frame("data", data) + encode_frame("end", b"{}", node="n1")
    assert max(map(len, sent.splitlines())) < 1000
    labelled = b"Welcome to n1!\n" + b"".join(b"0: " + line + b"\n" for line in sent.splitlines()) + b"bye\n"
    source = random.Random(2)
    decoder, frames = NodeDecoder(), []
    while labelled:
        size = source.randint(1, 999)
        frames += list(decoder.feed(labelled[:size]))
        labelled = labelled[size:]
    assert b"".join(frame.payload for frame in frames if frame.kind == "data") == data
    assert [frame.kind for frame in frames if frame.kind != "data"] == ["hello", "end"]
    assert frames[-1].node == "n1"
    assert decoder.other_output == b"Welcome to n1!\nbye\n"
    assert decoder.other_bytes == len(b"Welcome to n1!\nbye\n")


def test_lines_without_an_end_are_not_kept() -> None:
    decoder = NodeDecoder()
    for _ in range(100):
        assert list(decoder.feed(b"x" * 100_000)) == []
    assert decoder.other_bytes == 10_000_000
    assert [frame.kind for frame in decoder.feed(b"\n" + encode_frame("hello"))] == ["hello"]


def test_any_bytes_are_decoded_without_harm() -> None:
    source = random.Random(3)
    whole = encode_frame("data", os.urandom(500)) * 5
    for _ in range(500):
        broken = bytearray(whole)
        for _ in range(20):
            broken[source.randrange(len(broken))] = source.randrange(256)
        for frame in NodeDecoder().feed(bytes(broken)):
            assert isinstance(frame, Frame)
            assert len(frame.payload) <= 4096
