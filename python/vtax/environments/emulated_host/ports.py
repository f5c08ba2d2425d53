"""The virtio-serial ports of an emulated host, which are the channels of its guests."""

FOLDER = "/dev/virtio-ports"


def name(number: int) -> str:
    """The port that is the channel of guest `number`."""
    return f"org.vtax.guest.{number}"


def device(number: int) -> str:
    """The device of that port, under the name that udev would give it."""
    return f"{FOLDER}/{name(number)}"


def lines() -> list[str]:
    """Shell commands that give each port its name in `FOLDER`."""
    made = [f"mkdir -p {FOLDER}", "for port in /sys/class/virtio-ports/*; do"]
    return [*made, f'ln -s "/dev/${{port##*/}}" "{FOLDER}/$(cat "$port/name")"', "done"]
