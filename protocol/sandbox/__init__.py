"""Programs from anybody, run where they can do nothing but compute.

    Pool.run(Job, Limits) ─▶ SandboxProcess (bubblewrap, seccomp, rlimits; used once) ─▶ Run ─▶ Verdict

The boundary: nothing inside is trusted. What comes out is bytes on two pipes, an exit code, and what the kernel says
of time and memory; right or wrong is decided outside, and what would be right never goes in.
"""
