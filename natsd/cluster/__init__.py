"""Routes: the servers of a cluster as peers, each of which has a connection to every other.

    service       listens, serves connections, reloads
    handshake     CONNECT and INFO until a route has its place
    membership    what follows: gossip, URLs for clients, dialing again
    carriers      which connection carries which account
    route_table   which connection serves which peer: pool, dedicated routes, duplicates
    cluster       what a server knows of its cluster; monitoring reads it
    route         one connection and its log lines
    dialer        connections that this server opens, and their repetition
    peer_info     INFO and CONNECT between servers

A module imports only from those below it, and from others beside them. Messages, interest and pings
are compiled code (natsd.core.network.RouteSession). A server without a cluster does not import this
package.
"""
