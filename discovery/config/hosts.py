"""Which hosts are this one."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Tell whether only this host can be meant by a name or an address; other names are not looked up.

    Runs: anywhere (pure).
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False
