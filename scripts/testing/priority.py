"""Programs that stand back behind others."""
import os


def own_session(nice):
    """Runs in a child before its program: a session of its own, with that niceness.

    Linux schedules sessions against each other (autogroups), whatever the niceness of their processes; so the session gets it, too.
    """
    os.setsid()
    if nice:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        try:
            with open("/proc/self/autogroup", "w") as file:
                file.write(str(nice))
        except OSError:
            pass  # a kernel without autogroups
