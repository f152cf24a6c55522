//! QEMU hosts.
