"""A model that rests behind the gateway: no request is lost, and one start answers all that wait."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from fake_backend import Backend, serve
from gateway import proxy as running

#: Rests in the random test. By hand: 200.
RESTS = int(os.environ.get("GB10_RESTS", "4"))


class Resting:
    """A server that rests: systemd's socket listens while it does not."""

    def __init__(self, name: str = "tiny") -> None:
        self.server, self.wake, self.starts = Backend(name), running.free_port(), 0
        self.server.port = running.free_port()

    @contextmanager
    def up(self) -> Iterator[None]:
        self.server.closed = False
        with serve(self.server):
            yield
            # As the watchdog does before the stop.
            self.server.closed = True
            while self.server.running:
                time.sleep(0.01)
            time.sleep(random.uniform(0, 0.3))

    def rest(self, seconds: float = 0, until: threading.Event | None = None) -> bool:
        """Rest until someone connects, then take some seconds to start."""
        with socket.create_server(("127.0.0.1", self.wake)) as waker:
            waker.settimeout(0.1)
            while not (until and until.is_set()):
                try:
                    waker.accept()[0].close()
                    break
                except TimeoutError:
                    continue
            else:
                return False
        self.starts += 1
        time.sleep(seconds)
        return True

    @property
    def model(self) -> dict[str, object]:
        return {
            "name": self.server.name,
            "url": f"http://127.0.0.1:{self.server.port}/v1",
            "cluster": f"c-{self.server.name}",
            "wake": self.wake,
        }


@contextmanager
def behind(folder: Path, *models: dict[str, object], **more: object) -> Iterator[tuple[running.Proxy, str]]:
    """Yield a gateway and a client's key."""
    running.python()
    with running.closed_network(), ExitStack() as stack:
        found = stack.enter_context(running.started(running.planned(models, **more), {}, folder))
        yield found, found.add("alice")


def asking(gateway: running.Proxy, key: str, answers: list[running.Answer], model: str = "tiny") -> threading.Thread:
    thread = threading.Thread(target=lambda: answers.append(gateway.chat(model, key)))
    thread.start()
    return thread


def test_the_first_request_starts_the_model_once_and_all_wait_for_it(tmp_path: Path) -> None:
    model, answers = Resting(), list[running.Answer]()
    with behind(tmp_path, model.model) as (gateway, key):
        threads = [asking(gateway, key, answers) for _request in range(5)]
        assert model.rest(1)
        with model.up():
            for thread in threads:
                thread.join()
            assert [answer.status for answer in answers] == [200] * 5, [answer.text for answer in answers]
        assert model.starts == 1 and len(model.server.bodies) == 5
        assert gateway.log().count("it rests, and a request starts it") == 1


def test_a_request_during_the_stop_waits_for_the_next_start(tmp_path: Path) -> None:
    """The gateway believes that the server is healthy; the guard refuses, then nobody listens, then the socket does."""
    model, answers = Resting(), list[running.Answer]()
    with behind(tmp_path, model.model, health_interval=3600) as (gateway, key):
        with model.up():
            assert gateway.chat("tiny", key).status == 200
            model.server.closed = True
            thread = asking(gateway, key, answers)
            time.sleep(0.5)
        time.sleep(0.5)
        assert model.rest()
        with model.up():
            thread.join()
        assert answers[0].status == 200 and len(model.server.bodies) == 2


@pytest.mark.parametrize("rests", [True, False])
def test_a_request_whose_connection_ends_is_sent_again_only_after_a_rest(tmp_path: Path, rests: bool) -> None:
    """A server that ends may close connections that it has not taken. One that crashed may have begun the answer."""
    model, answers = Resting(), list[running.Answer]()
    with behind(tmp_path, model.model, health_interval=3600) as (gateway, key):
        with model.up():
            assert gateway.chat("tiny", key).status == 200
            model.server.drops = True
            # The gateway's next check must not find it healthy.
            model.server.lag = 10
            thread = asking(gateway, key, answers)
            while len(model.server.bodies) < 2:
                time.sleep(0.05)
        model.server.drops, model.server.lag = False, 0
        assert not rests or model.rest()
        with model.up():
            thread.join()
        assert (answers[0].status, len(model.server.bodies)) == ((200, 3) if rests else (503, 2)), answers[0].text


def test_a_fallback_answers_while_the_model_starts(tmp_path: Path) -> None:
    model, other = Resting(), Backend("small")
    with ExitStack() as stack:
        running.python()
        stack.enter_context(running.closed_network())
        stack.enter_context(serve(other))
        small = {"name": "small", "url": f"http://127.0.0.1:{other.port}/v1", "cluster": "b"}
        planned = running.planned([model.model, small], fallbacks={"tiny": ["small"]})
        gateway = stack.enter_context(running.started(planned, {}, tmp_path))
        key = gateway.add("alice")
        answer = gateway.chat("tiny", key)
        assert answer.status == 200 and answer.data["model"] == "small"
        assert model.rest()
        with model.up():
            gateway.wait(lambda report: report["models"][0]["healthy"])
            assert gateway.chat("tiny", key).data["model"] == "tiny"


def test_a_model_that_does_not_start_is_refused_after_the_time_limit(tmp_path: Path) -> None:
    model, answers = Resting(), list[running.Answer]()
    with behind(tmp_path, model.model, wake_timeout=2) as (gateway, key):
        thread = asking(gateway, key, answers)
        assert model.rest()
        thread.join()
        assert answers[0].status == 503 and answers[0].headers["retry-after"] == "3"
        assert "c-tiny/tiny: Connection refused" in answers[0].text and answers[0].seconds < 20


@pytest.mark.parametrize("seed", [1])
def test_no_request_is_lost_at_random_times(tmp_path: Path, seed: int) -> None:
    model, answers, done = Resting(), list[running.Answer](), threading.Event()
    order = random.Random(seed)
    with behind(tmp_path, model.model, health_interval=2) as (gateway, key):

        def ask(times: random.Random) -> None:
            while not done.is_set():
                answers.append(gateway.chat("tiny", key))
                time.sleep(times.expovariate(0.7))

        clients = [threading.Thread(target=ask, args=(random.Random(number),)) for number in range(3)]
        for client in clients:
            client.start()
        for _rest in range(RESTS):
            with model.up():
                # Longer than the pause between two checks of the gateway, and far shorter than any setting.
                time.sleep(order.uniform(2.1, 3))
            time.sleep(order.uniform(0, 0.5))
            assert model.rest(order.uniform(0, 0.5), done)
        with model.up():
            done.set()
            for client in clients:
                client.join()
    assert {answer.status for answer in answers} == {200}, [each.text for each in answers if each.status != 200]
    assert model.starts == RESTS and len(model.server.bodies) == len(answers) > RESTS
