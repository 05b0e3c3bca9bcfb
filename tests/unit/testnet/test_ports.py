"""Ports that a run holds: free for its own roles, for nobody else."""

from __future__ import annotations

import socket

import pytest

from testnet.ports import HOST, Ports


def test_a_held_port_can_be_listened_on_again_and_again() -> None:
    with Ports(1) as ports:
        for _ in range(2):
            server = socket.create_server((HOST, ports.numbers[0]))
            with server, socket.create_connection(server.getsockname()) as client:
                assert client.getpeername()[1] == ports.numbers[0]


def test_held_ports_are_all_different_and_nobody_elses() -> None:
    with Ports(50) as ours, Ports(50) as theirs:
        assert len(set(ours.numbers) | set(theirs.numbers)) == 100


def test_a_port_is_free_once_it_is_let_go() -> None:
    with Ports(1) as ports:
        (port,) = ports.numbers
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((HOST, port))
    with socket.socket() as other:
        other.bind((HOST, port))
