"""Starts programs with a lower priority than others."""
import os


def own_session(nice):
    """Runs in a child before its program: gives it its own session with this niceness.

    Linux schedules sessions against each other (autogroups), whatever the niceness of their processes, so the session needs it as well.
    """
    os.setsid()
    if nice:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        try:
            with open("/proc/self/autogroup", "w") as file:
                file.write(str(nice))
        except OSError:
            pass  # a kernel without autogroups
