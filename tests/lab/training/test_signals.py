import os
import signal
import threading

import pytest

from filtercov.lab.training import read_result
from filtercov.lab.training.signals import StopRequest
from tests.lab.training.toys import toy_fit


@pytest.fixture
def ctrl_c_interrupts():
    """As in a terminal; what runs in the background of a script ignores Ctrl-C from the start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_the_first_signal_is_a_request_and_the_second_is_delivered():
    before = signal.getsignal(signal.SIGINT)
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.signal == signal.SIGINT
        assert signal.getsignal(signal.SIGINT) is before
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_patient_request_outlasts_further_signals():
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest(patient=True) as stop:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        assert stop.requested
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_a_signal_after_the_last_step_is_delivered_when_the_run_is_whole(tmp_path):
    def interrupt(_model, _path):
        os.kill(os.getpid(), signal.SIGINT)
        return {}

    with pytest.raises(KeyboardInterrupt):
        toy_fit(tmp_path, on_finish=interrupt)
    assert read_result(tmp_path).steps == 15


def test_training_works_outside_the_main_thread(tmp_path):
    results = []
    thread = threading.Thread(target=lambda: results.append(toy_fit(tmp_path)))
    thread.start()
    thread.join()
    assert results[0].steps == 15
