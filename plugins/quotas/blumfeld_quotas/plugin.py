"""The plug-in: the hooks that bring quotas of clients."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.spi.context import ApiHandler
from blumfeld.spi.hooks import Composition, Metric, NoOptions, hookimpl
from blumfeld.spi.image_sections import ControllerCommand, ImageSection
from blumfeld_quotas.alter import AlterQuotas
from blumfeld_quotas.client_quotas import ClientQuotas
from blumfeld_quotas.entities import QuotaSection
from blumfeld_quotas.handlers import handlers


class Plugin:
    """Quotas of clients, as Kafka counts them."""

    options_class = NoOptions
    roles = ("quotas",)
    limits = True

    def __init__(self) -> None:
        self._made: ClientQuotas | None = None

    @hookimpl
    def blumfeld_image_sections(self) -> Sequence[ImageSection]:
        """The section of quotas."""
        return (QuotaSection(),)

    @hookimpl
    def blumfeld_controller_commands(self) -> Sequence[ControllerCommand]:
        """AlterClientQuotas."""
        return (AlterQuotas(),)

    @hookimpl
    def blumfeld_make_quotas(self, composition: Composition) -> ClientQuotas:
        """The measures of this node."""
        self._made = ClientQuotas(composition)
        return self._made

    @hookimpl
    def blumfeld_api_handlers(self, composition: Composition) -> Sequence[ApiHandler]:
        """DescribeClientQuotas and AlterClientQuotas."""
        return handlers(composition)

    @hookimpl
    def blumfeld_metrics(self) -> Sequence[Metric]:
        """How often clients were told to wait."""
        made = self._made
        if made is None:
            return ()
        return (
            Metric(
                name="blumfeld_quota_throttled_total",
                help="Requests after which a client was told to wait, and connections that were closed, by the quota.",
                kind="counter",
                labels=("quota",),
                read=lambda: {(quota,): count for quota, count in made.throttled.items()},
            ),
            Metric(
                name="blumfeld_quota_counted_total",
                help="What clients with a quota took, by the quota: bytes, seconds of a thread in per cent, "
                "partitions, connections.",
                kind="counter",
                labels=("quota",),
                read=lambda: {(quota,): count for quota, count in made.counted.items()},
            ),
        )
