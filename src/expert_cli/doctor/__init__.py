"""Is this machine ready? Checks that look (system, packages, places), and probes that try, in a process of their own."""
