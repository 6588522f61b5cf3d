"""The plug-in: its options, and the hooks that bring the gate, sections, commands and handlers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blumfeld.spi.context import ApiHandler
from blumfeld.spi.hooks import Composition, Metric, hookimpl
from blumfeld.spi.image_sections import ControllerCommand, ImageSection
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.security import Security
from blumfeld.wire.schema import Message
from blumfeld_security.acls.commands import CreateAcls, DeleteAcls
from blumfeld_security.acls.section import AclSection
from blumfeld_security.node_security import NodeSecurity
from blumfeld_security.options import Options
from blumfeld_security.scram.alteration import AlterCredentials
from blumfeld_security.scram.credentials import ScramSection
from blumfeld_security.tokens.commands import token_commands
from blumfeld_security.tokens.delegation_tokens import TokenSecrets, TokenSection, TokenSettings


class Plugin:
    """Security of a node."""

    options_class = Options
    roles = ("security",)
    secures = True

    def __init__(self) -> None:
        self._security: NodeSecurity | None = None

    @hookimpl
    def blumfeld_cli_commands(self) -> Sequence[Any]:
        """The command ``security`` with its verbs."""
        from blumfeld_security.commands import app

        return [app]

    @hookimpl
    def blumfeld_image_sections(self) -> Sequence[ImageSection]:
        """ACLs, credentials of SCRAM, delegation tokens."""
        return (AclSection(), ScramSection(), TokenSection())

    @hookimpl
    def blumfeld_controller_commands(self) -> Sequence[ControllerCommand]:
        """CreateAcls, DeleteAcls, AlterUserScramCredentials, and those of delegation tokens."""
        return (CreateAcls(), DeleteAcls(), AlterCredentials(), *token_commands(self._token_secrets))

    def _token_secrets(self) -> TokenSecrets:
        no_tokens = TokenSecrets(TokenSettings(secret_key=b""))
        return no_tokens if self._security is None else self._security.token_secrets

    @hookimpl
    def blumfeld_first_credentials(self, runtime: Runtime, add_scram: Sequence[str]) -> Sequence[Message]:
        """The records of ``--add-scram``."""
        from blumfeld_security.scram.first_credentials import first_credential

        return [first_credential(text, runtime.files, runtime.secrets) for text in add_scram]

    @hookimpl
    def blumfeld_make_security(self, composition: Composition) -> Security:
        """Make the node's security. It opens nothing."""
        self._security = NodeSecurity(composition)
        return self._security

    @hookimpl
    def blumfeld_api_handlers(self, composition: Composition) -> Sequence[ApiHandler]:
        """Logins, ACLs where they decide, and credentials of SCRAM."""
        return () if self._security is None else self._security.handlers()

    @hookimpl
    def blumfeld_metrics(self) -> Sequence[Metric]:
        """Logins, verdicts, and counters of TLS."""
        return () if self._security is None else self._security.metrics()
