# SPDX-License-Identifier: Apache-2.0
"""ReFrame's settings for this machine: no batch system, ranks by mpirun."""

site_configuration = {
    "systems": [{
        "name": "local",
        "descr": "this machine",
        "hostnames": [".*"],
        "partitions": [{"name": "cores", "scheduler": "local", "launcher": "mpirun", "environs": ["built"]}],
    }],
    "environments": [{"name": "built"}],  # the program is built already
    "general": [{"remote_detect": False}],
}
