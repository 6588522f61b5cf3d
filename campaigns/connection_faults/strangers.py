"""Strangers at the door: fuzzed TLS handshakes and SASL frames on sockets, and connections that never log in.

Each stranger ends with a request that needs a login. If that is ever served, somebody is in.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hmac
import json
import random
import ssl
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

from blumfeld.client.connection import read_answer
from blumfeld.client.security.scram import MECHANISMS, ScramClient, ScramMechanism
from blumfeld.testing.process import LOOPBACK
from blumfeld.wire.messages.metadata import MetadataRequest
from blumfeld.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from blumfeld.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from blumfeld.wire.schema import Message
from campaigns.certificates import Authority, private
from campaigns.connection_faults.census import scrape
from campaigns.connection_faults.fault import Fault, Scene, Wrong
from campaigns.connection_faults.frames import api_versions, framed, source_of, spoiled
from campaigns.connection_faults.secured_listeners import (
    PORTS,
    add_scram_credentials,
    client_context,
    folder,
    issuer_key,
    settings,
)
from campaigns.secured.identities import AUDIENCE, ISSUER, PASSWORD, USER

FRAMES, HANDSHAKES, SILENT = 22_000, 12_500, 2_000
"""Strangers of one repetition. A run has three on each transport: 207,000 together."""
AT_ONCE = 200
PATIENCE_S = 2.0
SLOW_S = 0.02
CLOSED_WITHIN_S = 20.0
AFTER = 0x5EC0DE
"""Correlation id of the request that needs a login."""
STALL_MS = 2_000.0
"""The others' worst latency while one core makes all the strangers' handshakes."""
SASL_FRAME_BYTES_MAX = 524_288
ODD_NAMES = (
    "Alice", "alice ", " alice", "alice\n", "alice\u200b", "\uff41lice", "\u0430lice", "al\u00adice", "alice\u0301",
    "\u202ealice", "root", "admin", "ANONYMOUS", "User:alice", "*", "", "\x7f", "alice\t", "a" * 5_000, "é" * 300,
)  # fmt: skip
"""Names that look like the user's, or that nobody should have."""
T = TypeVar("T")


class Stranger:
    """One connection of somebody without a login."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random
    ) -> None:
        self.reader, self.writer, self.chance = reader, writer, chance
        self._correlation_id = 0

    async def say(self, data: bytes) -> None:
        """Send bytes, whatever they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, message: Message, version: int, _expected: type[T]) -> T:
        """Send a request; returns its answer."""
        self._correlation_id += 1
        await self.say(framed(message, version, self._correlation_id))
        key = message.meta.key
        assert key is not None
        answer, _ = read_answer(await self.frame(), key, version, self._correlation_id)
        return answer  # type: ignore[return-value]

    async def frame(self) -> bytes:
        """Returns the next frame."""
        (size,) = struct.unpack(">i", await asyncio.wait_for(self.reader.readexactly(4), PATIENCE_S))
        return await asyncio.wait_for(self.reader.readexactly(size), PATIENCE_S)

    async def shake(self, mechanism: str, version: int = 1) -> None:
        """Begin an exchange."""
        await self.ask(SaslHandshakeRequest(mechanism=mechanism), version, SaslHandshakeResponse)

    async def token(self, token: bytes, version: int | None = None) -> SaslAuthenticateResponse:
        """Send a token of the exchange; returns the answer."""
        chosen = self.chance.randrange(3) if version is None else version
        return await self.ask(SaslAuthenticateRequest(auth_bytes=token), chosen, SaslAuthenticateResponse)

    async def is_served(self) -> bool:
        """Ask for what needs a login; returns whether an answer comes. Others are read past."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            await self.say(framed(MetadataRequest(topics=None), 9, AFTER))
            while True:
                if (await self.frame())[:4] == struct.pack(">i", AFTER):
                    return True
        return False


Act = Callable[[Stranger], Awaitable[None]]


# Frames of SASL


async def out_of_turn(stranger: Stranger) -> None:
    """Any request before the login: of SASL without a handshake, of others, of none that there is."""
    chance = stranger.chance
    kind = chance.randrange(4)
    if kind == 0:
        await stranger.say(framed(SaslAuthenticateRequest(auth_bytes=_plain(chance)), 1, 1))
    elif kind == 1:
        key, version = chance.randrange(-2, 100), chance.randrange(-1, 20)
        head = struct.pack(">hhih", key, version, 1, -1) + chance.randbytes(chance.randrange(60))
        await stranger.say(struct.pack(">i", len(head)) + head)
    elif kind == 2:
        await stranger.say(api_versions() * chance.randrange(1, 8))
    else:
        await stranger.shake(chance.choice((*MECHANISMS, "PLAIN")))
        await stranger.say(framed(MetadataRequest(topics=[]), chance.randrange(13), 7))


async def wrong_handshakes(stranger: Stranger) -> None:
    """Mechanisms that there are none of, and handshakes again and again."""
    chance = stranger.chance
    names = (
        "",
        "plain",
        "PLAIN\0",
        "GSSAPI",
        "ANONYMOUS",
        "EXTERNAL",
        "SCRAM-SHA-256-PLUS",
        "P" * 9_000,
        "\u202e",
    )
    for _ in range(chance.randrange(1, 4)):
        await stranger.shake(chance.choice((*names, "PLAIN")), chance.randrange(2))


async def sizes(stranger: Stranger) -> None:
    """Frames of every size but a legal one, and legal ones in pieces."""
    chance = stranger.chance
    kind = chance.randrange(3)
    if kind == 0:
        size = chance.choice((-1, -(1 << 31), 0, 1, 3, SASL_FRAME_BYTES_MAX + 1, (1 << 31) - 1, 0x16030100))
        await stranger.say(struct.pack(">i", size) + chance.randbytes(chance.randrange(8)))
    elif kind == 1:
        await stranger.shake("PLAIN", chance.randrange(2))
        await stranger.say(framed(SaslAuthenticateRequest(auth_bytes=bytes(SASL_FRAME_BYTES_MAX)), 1, 1))
    else:
        whole = framed(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1) + framed(
            SaslAuthenticateRequest(auth_bytes=_plain(chance)), 1, 2
        )
        for start in range(0, len(whole), step := chance.randrange(5, 30)):
            await stranger.say(whole[start : start + step])
            await asyncio.sleep(SLOW_S)


async def spoiled_frames(stranger: Stranger) -> None:
    """A login with a wrong password, spoiled on the wire."""
    chance = stranger.chance
    token = SaslAuthenticateRequest(auth_bytes=_plain(chance))
    whole = framed(SaslHandshakeRequest(mechanism=chance.choice(("PLAIN", *MECHANISMS))), 1, 1)
    for _ in range(chance.randrange(1, 4)):
        whole += framed(token, chance.randrange(3), 2)
    await stranger.say(spoiled(whole, chance))


def _plain(chance: random.Random) -> bytes:
    """Returns a token of PLAIN that logs nobody in."""
    right, odd = f"{USER}\0{PASSWORD}", chance.choice(ODD_NAMES)
    made = (
        f"\0{odd}\0{PASSWORD}",
        f"\0{USER}\0{chance.choice(('', PASSWORD + ' ', PASSWORD.upper(), odd))}",
        f"{odd or 'root'}\0{right}",
        f"\0\0{right}",
        f"\0{right}\0",
        "\0" * chance.randrange(2_000),
        right,
        f"\0{USER}",
    )
    nth = chance.randrange(len(made) + 2)
    if nth < len(made):
        return made[nth].encode()
    return (
        chance.randbytes(chance.randrange(200)) if nth == len(made) else f"\0{USER}\0".encode() + b"\xff\xfe"
    )


async def plain_tokens(stranger: Stranger) -> None:
    """Tokens of PLAIN: look-alikes, other users to act for, control characters, too many parts."""
    version = stranger.chance.randrange(2)
    await stranger.shake("PLAIN", version)
    token = _plain(stranger.chance)
    if version:
        await stranger.token(token)
        await stranger.token(token)
    else:
        await stranger.say(struct.pack(">i", len(token)) + token)


async def scram_first(stranger: Stranger) -> None:
    """First messages of SCRAM: channel bindings, other users to act for, extensions, no nonce, odd names."""
    chance = stranger.chance
    odd, nonce = chance.choice(ODD_NAMES), f"{chance.getrandbits(96):x}"
    firsts = (
        f"p=tls-unique,,n={USER},r={nonce}",
        f"p=tls-exporter,a={USER},n={USER},r={nonce}",
        f"n,a={odd or 'root'},n={USER},r={nonce}",
        f"n,,m=ext,n={USER},r={nonce}",
        f"n,,r={nonce},n={USER}",
        f"n,,n={USER}",
        f"n,,n={USER},r=",
        f"n,,n={USER},r={nonce}\0",
        f"n,,n={odd},r={nonce}",
        f"y,,n={odd},r={nonce},tokenauth=true",
        f"n,,n={USER},r={nonce},tokenauth=TRUE",
        f"n,,n={USER},r={nonce}" + ",x=1" * 40,
        f"n,,n={'a' * 70_000},r={nonce}",
        f"n,,n={USER},r={chr(0x7F)}{nonce}",
        f"n,,n={USER}=,r={nonce}",
    )
    await stranger.shake(chance.choice(tuple(MECHANISMS)))
    first = chance.choice(firsts).encode()
    challenge = await stranger.token(spoiled(first, chance) if not chance.randrange(4) else first)
    if not challenge.error_code:
        final = f"c=biws,r={nonce},p={base64.b64encode(bytes(chance.choice((0, 31, 32, 64)))).decode()}"
        await stranger.token(final.encode())


@functools.cache
def _salted(mechanism: ScramMechanism, salt: bytes, iterations: int) -> bytes:
    return mechanism.salted_password(PASSWORD, salt, iterations)


async def scram_final(stranger: Stranger) -> None:
    """The right password, and a final message with another nonce, another channel binding or a spoiled proof."""
    chance = stranger.chance
    mechanism = chance.choice(tuple(MECHANISMS.values()))
    await stranger.shake(mechanism.name)
    client = ScramClient(mechanism, USER, f"{chance.getrandbits(96):x}")
    answer = await stranger.token(client.first(), 1)
    challenge = client.read(bytes(answer.auth_bytes))
    right = client.proof(challenge, _salted(mechanism, challenge.salt, challenge.iterations)).decode()
    head, _, proof = right.rpartition(",p=")
    binding, _, nonce = head.partition(",r=")
    bent = bytearray(base64.b64decode(proof))
    bent[chance.randrange(len(bent))] ^= 1 << chance.randrange(8)
    wrongs = (
        f"{head},p={base64.b64encode(bent).decode()}",
        f"{head},p={base64.b64encode(bent[:-1]).decode()}",
        f"{binding},r={nonce[:-1]},p={proof}",
        f"{binding},r={nonce}x,p={proof}",
        f"c=eSws,r={nonce},p={proof}",
        f"c=cD10bHMtdW5pcXVlLCw=,r={nonce},p={proof}",
        f"{head},x=1,p={proof}",
        f"{head},p={proof},p={proof}",
        f"{head},p=",
        head,
    )
    await stranger.token(chance.choice(wrongs).encode())
    await stranger.token(right.encode())


def _part(value: object) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


@functools.cache
def jwts() -> tuple[str, ...]:
    """Tokens that no issuer has made, or not for here and now."""
    from joserfc import jwt
    from joserfc.jwk import ECKey, RSAKey

    now_s = int(time.time())
    claims = {"sub": USER, "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + 86_400}
    key, other = issuer_key(), RSAKey.generate_key(2048, {"kid": "one"})
    public = key.as_dict(private=False)
    pem = key.as_pem(private=False)
    made = []
    made += [
        f"{_part({'alg': algorithm, 'kid': 'one'})}.{_part(claims)}.{signature}"
        for algorithm in ("none", "None", "NONE", "nOnE", "")
        for signature in ("", "AA")
    ]
    for secret in (pem, pem.strip(), public["n"].encode(), b"", json.dumps(public).encode()):
        for algorithm, name in (("HS256", "sha256"), ("HS512", "sha512")):
            signed = f"{_part({'alg': algorithm, 'kid': 'one'})}.{_part(claims)}"
            made.append(f"{signed}.{_part(hmac.digest(secret, signed.encode(), name))}")
    of_other = jwt.encode({"alg": "RS256", "kid": "one"}, claims, other)
    embedded = other.as_dict(private=False)
    curve = ECKey.generate_key("P-256", {"kid": "one"})
    made += [
        of_other,
        jwt.encode({"alg": "RS256", "kid": "two"}, claims, other),
        jwt.encode({"alg": "RS256"}, claims, other),
        jwt.encode({"alg": "RS256", "kid": "one", "jwk": embedded}, claims, other),
        jwt.encode({"alg": "RS256", "kid": "one", "jku": "https://evil.example/keys"}, claims, other),
        jwt.encode({"alg": "ES256", "kid": "one"}, claims, curve),
        jwt.encode({"alg": "ES256", "kid": "../../keys.json"}, claims, curve),
    ]
    changes: tuple[dict[str, Any], ...] = (
        {"exp": now_s - 3_600}, {"iat": now_s + 3_600}, {"nbf": now_s + 3_600}, {"iss": "https://evil.example"},
        {"aud": "others"}, {"aud": []}, {"sub": ""}, {"sub": ["alice"]}, {"exp": "never"}, {"exp": True},
        {"exp": 1e300},
    )  # fmt: skip
    made += [jwt.encode({"alg": "RS256", "kid": "one"}, {**claims, **change}, key) for change in changes]
    header, _, signature = jwt.encode({"alg": "RS256", "kid": "one"}, claims, key).split(".")
    for subject in ("root", "admin", "User:alice"):
        made.append(f"{header}.{_part({**claims, 'sub': subject})}.{signature}")
    made += [
        "a.b.c",
        "..",
        "." * 70_000,
        f"{header}.{'A' * 70_000}.{signature}",
        f"{_part(b'[' * 5_000)}.e30.AA",
    ]
    return tuple(made)


async def bearer_tokens(stranger: Stranger) -> None:
    """Bearer tokens: none signed, signed with a public key, by another key, for others, and oversized ones."""
    chance = stranger.chance
    await stranger.shake("OAUTHBEARER")
    token = chance.choice(jwts())
    messages = (
        f"n,,\x01auth=Bearer {token}\x01\x01",
        f"n,a={USER},\x01auth=bearer {token}\x01\x01",
        f"y,a=root,\x01auth=Bearer {token}\x01x=1\x01\x01",
        f"n,,\x01auth=Basic {token}\x01\x01",
        f"n,,\x01auth=Bearer {token}\x01auth=Bearer {token}\x01\x01",
        f"n,,auth=Bearer {token}",
        f"p=tls-unique,,\x01auth=Bearer {token}\x01\x01",
    )
    answer = await stranger.token(chance.choice(messages).encode())
    if not answer.error_code:
        await stranger.token(b"\x01")


ACTS: tuple[Act, ...] = (
    out_of_turn,
    wrong_handshakes,
    sizes,
    spoiled_frames,
    spoiled_frames,
    plain_tokens,
    scram_first,
    scram_final,
    bearer_tokens,
)


# TLS


class Hellos:
    """First messages of TLS, made beforehand."""

    def __init__(self) -> None:
        self.made = []
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = client_context()
            context.maximum_version = version
            for name in (None, "node", "x" * 60):
                outgoing = ssl.MemoryBIO()
                tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
                with contextlib.suppress(ssl.SSLWantReadError):
                    tls.do_handshake()
                self.made.append(outgoing.read())

    async def broken(self, stranger: Stranger) -> None:
        """A first message that is spoiled, cut off, in pieces, of an old version, or none at all."""
        chance = stranger.chance
        hello = bytearray(chance.choice(self.made))
        kind = chance.randrange(8)
        if kind < 4:
            await stranger.say(spoiled(bytes(hello), chance))
        elif kind == 4:
            hello[9:11] = chance.choice((b"\x03\x00", b"\x03\x01", b"\x03\x02", b"\x02\x00", b"\xff\xff"))
            await stranger.say(bytes(hello))
        elif kind == 5:
            await stranger.say(bytes(hello) + chance.randbytes(chance.randrange(1, 400)))
        elif kind == 6:
            for start in range(0, len(hello), 40):
                await stranger.say(bytes(hello[start : start + 40]))
                await asyncio.sleep(SLOW_S)
            await stranger.say(
                chance.choice((b"\x15\x03\x03\x00\x02\x02\x28", b"\x14\x03\x03\x00\x01\x01", b"\x16"))
            )
        else:
            await stranger.say(
                chance.choice((api_versions(), b"GET / HTTP/1.1\r\n\r\n", b"\x80\x2e\x01\x00\x02"))
            )


@functools.cache
def wrong_identities() -> tuple[ssl.SSLContext, ...]:
    """Clients without a certificate, and with the user's name from another signer, in both versions of TLS."""
    at = folder()
    forged = Authority().leaf(("CN", USER))
    private(at / "forged.pem", forged.pem())
    contexts = []
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        for shown in (None, at / "forged.pem"):
            context = client_context()
            context.maximum_version = version
            if shown is not None:
                context.load_cert_chain(shown)
            contexts.append(context)
    return tuple(contexts)


def renegotiation(times: int) -> int:
    """Have OpenSSL's own client ask for another handshake; returns how often it got one."""
    at = folder()
    identity = ["-cert", str(at / f"{USER}.pem"), "-key", str(at / f"{USER}.key")]
    command = ["openssl", "s_client", "-tls1_2", "-connect", f"{LOOPBACK}:{PORTS['MUTUAL']}", *identity]
    got = 0
    for _ in range(times):
        asked = subprocess.run(command, input=b"R\n", capture_output=True, timeout=30, check=False)
        said = asked.stdout + asked.stderr
        if b"RENEGOTIATING" not in said:
            raise Wrong(f"openssl didn't ask for a renegotiation: {said[-200:]!r}")
        got += b"no renegotiation" not in said
    return got


# Meetings


async def meet(port: int, act: Act, nth: int, seed: int, tls: ssl.SSLContext | None) -> str:
    """One stranger; returns how it ended.

    :raises Wrong: the stranger was served
    """
    try:
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection(
                LOOPBACK, port, ssl=tls, local_addr=(source_of(nth), 0), limit=1 << 21
            )
    except (OSError, TimeoutError) as error:
        return "refused in the handshake" if tls is not None else f"no connection: {error}"
    stranger = Stranger(reader, writer, random.Random(seed * 1_000_003 + nth))
    try:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            await act(stranger)
        if await stranger.is_served():
            raise Wrong(f"{act.__qualname__} {nth} of seed {seed} is in")
        return "refused" if stranger.reader.at_eof() or stranger.reader.exception() else "without an answer"
    finally:
        writer.transport.abort()


async def meet_all(count: int, seed: int, choose: Callable[[int], tuple[int, Act, Any]]) -> Counter[str]:
    """All strangers, some at once; returns how many ended in which way."""
    ends: Counter[str] = Counter()
    numbers = iter(range(count))

    async def some() -> None:
        for nth in numbers:
            port, act, tls = choose(nth)
            ends[await meet(port, act, nth, seed, tls)] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(some())
    return ends


def _run(meetings: Any) -> Any:
    try:
        return asyncio.run(meetings)
    except* Wrong as wrong:
        raise wrong.exceptions[0] from None


def _told(count: int, ends: Counter[str], began_s: float) -> str:
    ended = ", ".join(f"{many} {end}" for end, many in ends.most_common())
    return f"{count} in {time.monotonic() - began_s:.0f} s: {ended}"


def _logins(scene: Scene) -> int:
    return round(scrape(scene.metrics_address).get("blumfeld_logins_total", 0.0))


_seeds = iter(range(1 << 30))


def with_credentials(scene: Scene) -> None:
    """Give the user credentials of SCRAM, and see that the right password logs in: else everything would be refused."""
    add_scram_credentials(scene.address)

    async def right() -> None:
        reader, writer = await asyncio.open_connection(LOOPBACK, PORTS["CLEAR"])
        stranger = Stranger(reader, writer, random.Random(0))
        await stranger.shake("PLAIN")
        await stranger.token(f"\0{USER}\0{PASSWORD}".encode())
        if not await stranger.is_served():
            raise Wrong("the right password doesn't log in")
        writer.close()

    asyncio.run(right())


def frames(scene: Scene) -> str:
    """Fuzzed frames of SASL, one in forty within TLS."""
    with_credentials(scene)
    count, seed, tls = scene.times(FRAMES, least=100), next(_seeds), client_context()

    def choose(nth: int) -> tuple[int, Act, Any]:
        act = ACTS[nth % len(ACTS)]
        return (PORTS["CLEAR"], act, None) if nth % 40 else (PORTS["BOTH"], act, tls)

    before, began_s = _logins(scene), time.monotonic()
    ends = _run(meet_all(count, seed, choose))
    return f"{_told(count, ends, began_s)}; {_logins(scene) - before} of them got as far as a wrong login"


def handshakes(scene: Scene) -> str:
    """Fuzzed handshakes, one in twenty whole, but without a certificate or with a forged one; renegotiations."""
    count, seed, hellos = scene.times(HANDSHAKES, least=100), next(_seeds), Hellos()

    async def nothing(_: Stranger) -> None:
        pass

    def choose(nth: int) -> tuple[int, Act, Any]:
        if nth % 20:
            return PORTS["MUTUAL"], hellos.broken, None
        identities = wrong_identities()
        return PORTS["MUTUAL"], nothing, identities[nth // 20 % len(identities)]

    began_s = time.monotonic()
    ends = _run(meet_all(count, seed, choose))
    if renegotiation(3):
        raise Wrong("a renegotiation was done")
    return _told(count, ends, began_s)


def silent(scene: Scene) -> str:
    """Connections that ask for versions or begin an exchange, and never log in: closed in time."""
    count = scene.times(SILENT, least=20)
    says = (
        b"",
        api_versions(),
        framed(SaslHandshakeRequest(mechanism="PLAIN"), 1),
        framed(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        + framed(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"), 1),
    )

    async def wait() -> float:
        opened = [
            await asyncio.open_connection(LOOPBACK, PORTS["CLEAR"], local_addr=(source_of(nth), 0))
            for nth in range(count)
        ]
        for nth, (_, writer) in enumerate(opened):
            writer.write(says[nth % len(says)])
        began = time.monotonic()
        for reader, writer in opened:
            async with asyncio.timeout(CLOSED_WITHIN_S + began - time.monotonic()):
                await reader.read()
            writer.transport.abort()
        return time.monotonic() - began

    before = scene.broker.rss_bytes()
    try:
        seconds = asyncio.run(wait())
    except TimeoutError:
        raise Wrong(f"not all were closed within {CLOSED_WITHIN_S:.0f} s") from None
    grown = (scene.broker.rss_bytes() - before) >> 10
    return f"{count} connections, closed {seconds:.1f} s after the last; RSS {grown:+} KiB"


def faults() -> Iterator[Fault]:
    """All of them."""
    given: Sequence[str] = settings()
    yield Fault("strangers with fuzzed frames of SASL", frames, settings=given, stall_ms=STALL_MS)
    yield Fault("strangers with fuzzed TLS handshakes", handshakes, settings=given, stall_ms=STALL_MS)
    yield Fault("strangers that never log in", silent, settings=given, stall_ms=STALL_MS)
