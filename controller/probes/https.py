"""HTTPS: as HTTP, over TLS. Without `host` the certificate must be one for the address."""

from __future__ import annotations

import os
import ssl
from functools import cache

from controller import config_values as values
from controller.model import Address
from controller.probes.dial import Dial
from controller.probes.http import HttpCheck, HttpProbe
from controller.probes.probe import ProbeFailedError


class HttpsCheck(HttpCheck):
    """As http; `host` is also the name that the certificate must have, and by which the server picks one (SNI)."""

    port: values.Port = 443
    verify: values.Boolean = True


class HttpsProbe(HttpProbe):
    """Passes when TLS comes about, by default with a valid certificate, and the answer is as for http."""

    default_port = 443

    def __init__(self, address: Address, check: HttpsCheck, dial: Dial) -> None:
        super().__init__(address, check, dial)
        self._verify = check.verify
        self.server_name = _without_port(check.host) if check.host else str(address)

    async def ask(self) -> str:
        """One request and its answer; what is wrong with TLS is said in the library's words."""
        self.tls = _context(self._verify)
        try:
            return await super().ask()
        except ssl.SSLCertVerificationError as error:
            raise ProbeFailedError(f"certificate: {error.verify_message.rstrip('.')}") from None
        except ssl.SSLError as error:
            words = error.reason.lower().replace("_", " ") if error.reason else "the connection ended"
            raise ProbeFailedError(f"no TLS: {words}") from None


@cache
def _context(verify: bool) -> ssl.SSLContext:
    """One for all probes: it holds the authorities that the system trusts.

    OpenSSL says nothing when it cannot read them for want of a file; opening one before does.
    """
    with open(os.devnull):
        pass
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1 : host.index("]")]
    return host.partition(":")[0]
