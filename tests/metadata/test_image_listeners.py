"""Listeners of a metadata image: each hears of every delta, and none holds up another."""

from __future__ import annotations

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.listeners import ImageListeners
from blumfeld.metadata.image.step import ImageStep
from blumfeld.spi.cluster import ClusterImage, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld_kit.fakes import FakeRuntime
from tests.broker.harness import Quiet

EVENT = "a listener of the metadata image met a defect"


def step(image: MetadataImage) -> ImageDelta:
    return ImageStep(image).finish(image.offset + 1, 1)


def test_a_listener_that_raises_on_every_delta_is_logged_once_and_the_others_hear_of_all() -> None:
    log, image, heard = Quiet(), MetadataImage("cluster"), list[ImageDelta]()
    listeners = ImageListeners(FakeRuntime(), log)

    def raises(_: ClusterImage, __: ImageDelta) -> None:
        raise ZeroDivisionError

    listeners.subscribe(raises, None)
    listeners.subscribe(lambda _, delta: heard.append(delta), None)
    deltas = [step(image) for _ in range(3)]
    for delta in deltas:
        listeners.tell(image, delta)
    assert heard == deltas
    assert [event for _, event, _ in log.events] == [EVENT]


def test_deltas_are_applied_when_the_last_listener_says_so() -> None:
    image, applying = MetadataImage("cluster"), list[Completion[None]]()
    listeners = ImageListeners(FakeRuntime(), Quiet())

    def applies(_: ClusterImage, __: ImageDelta) -> Completion[None]:
        applying.append(Completion())
        return applying[-1]

    listeners.subscribe(applies, None)
    listeners.subscribe(applies, image)
    listeners.tell(image, step(image))
    waits = listeners.applied()
    for _ in range(3):
        waited = next(waits)
        assert waited in applying
        assert waited is not None
        waited.complete(None)
    assert next(waits, "applied") == "applied"
