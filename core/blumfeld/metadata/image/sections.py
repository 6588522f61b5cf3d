"""The sections of the image that a build's plug-ins bring, checked against each other. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.metadata.image.kept import KEPT
from blumfeld.spi.image_sections import ImageSection
from blumfeld.wire.schema import Message


class SectionKinds:
    """The sections of a build, by name and by the records that they are made of.

    :raises ValueError: two sections have one name or one type of record; or a section names a record that the core
        replays, or only some of the records of its part: it would miss what the others set or remove
    """

    def __init__(self, sections: Sequence[ImageSection] = ()) -> None:
        self.by_name: dict[str, ImageSection] = {}
        self.by_record: dict[type[Message], ImageSection] = {}
        for section in sections:
            if section.name in self.by_name:
                raise ValueError(f"two sections of the image are called {section.name}")
            self.by_name[section.name] = section
            for record in section.records:
                self._claim(section, record)
            self._check_whole(section)

    def _claim(self, section: ImageSection, record: type[Message]) -> None:
        if record not in KEPT:
            raise ValueError(
                f"section {section.name} of the image: {record.__name__} can't be part of a section; allowed: "
                + ", ".join(kind.__name__ for kind in KEPT)
            )
        other = self.by_record.setdefault(record, section)
        if other is not section:
            raise ValueError(
                f"sections {other.name} and {section.name} of the image both have {record.__name__}"
            )

    def _check_whole(self, section: ImageSection) -> None:
        parts = {KEPT[record].part for record in section.records}
        missing = [
            record.__name__
            for record, kept in KEPT.items()
            if kept.part in parts and record not in section.records
        ]
        if missing:
            raise ValueError(f"section {section.name} of the image lacks {', '.join(missing)}")


NO_SECTIONS = SectionKinds()
