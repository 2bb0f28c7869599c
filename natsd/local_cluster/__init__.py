"""A cluster of servers on this machine, each a process of its own with a file of its own.

    cluster = LocalCluster.create(Path("natsd-cluster"), Plan(name="local"), count=3)
    cluster.start()
    cluster.wait_for_mesh()
    cluster.member("n2").process.kill()

`natsd cluster` is this package with a command line; tests of faults use it as it is. The servers
outlive the program that has started them. Servers that end with a test are in natsd.testing.

    plan.py        names, ports and URLs of new servers
    member.py      one server: its configuration file, and what the file says
    process.py     its process, found by the pid file
    seen.py        what the server tells of itself and of its routes
    mesh.py        which connections are missing in a mesh; the fixtures of pytest use it, too
    cluster.py     all servers of a directory
"""
