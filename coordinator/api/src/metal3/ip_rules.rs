//! Rules on addresses, in the CEL of every API server that is supported. Its functions for addresses need a
//! later one, so that addresses of IPv4 are compared as numbers.

/// The IPv4 address `a` as a number.
macro_rules! number {
    () => {
        "[a.split('.')].map(p, int(p[0]) * 16777216 + int(p[1]) * 65536 + int(p[2]) * 256 + int(p[3]))[0]"
    };
}

/// The family of the range is IPv6, or not known.
macro_rules! is_ipv6 {
    ($range:literal) => {
        concat!(
            "(has(",
            $range,
            ".start) ? ",
            $range,
            ".start : has(",
            $range,
            ".subnet) ? ",
            $range,
            ".subnet : ':').contains(':')"
        )
    };
}

/// An end alone says not where the range begins.
pub(super) const BEGINS: &str = "has(self.start) || has(self.subnet) || !has(self.end)";

/// A range whose ends are of two families, or in the wrong order, is empty. The order of IPv6 addresses costs
/// more than a rule may, so that a policy has it.
pub(super) const ORDER: &str = concat!(
    "!has(self.start) || !has(self.end) || (self.start.contains(':') ? self.end.contains(':') : \
     !self.end.contains(':') && [[self.start, self.end].map(a, ",
    number!(),
    ")].all(n, n[0] <= n[1]))"
);

/// The subnet has the family of the ends.
pub(super) const FAMILY: &str = "!has(self.subnet) || (!has(self.start) || self.start.contains(':') == \
     self.subnet.contains(':')) && (!has(self.end) || self.end.contains(':') == self.subnet.contains(':'))";

/// The first address of an IPv4 range: the start, or the address above that of the subnet.
macro_rules! in_subnet {
    () => {
        "[[has(self.start) ? self.start : '0.0.0.0', has(self.end) ? self.end : '255.255.255.255', \
         self.subnet.split('/')[0]].map(a, "
    };
}

/// A range begins inside of its subnet, and before its end. For IPv6 the condition of the pool says the rest.
pub(super) const SUBNET: &str = concat!(
    "!has(self.subnet) || self.subnet.contains(':') && (has(self.start) || !self.subnet.endsWith('/128')) \
     || !self.subnet.contains(':') && (has(self.start) && self.start.contains(':') \
     || has(self.end) && self.end.contains(':') || ",
    in_subnet!(),
    number!(),
    ") + [[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, \
     262144, 524288, 1048576, 2097152, 4194304, 8388608, 16777216, 33554432, 67108864, 134217728, \
     268435456, 536870912, 1073741824, 2147483648, 4294967296][32 - int(self.subnet.split('/')[1])]]]\
     .all(n, has(self.start) ? n[0] / n[3] == n[2] / n[3] : (n[2] + 1) / n[3] == n[2] / n[3] && n[2] < n[1]))"
);

/// An IPv4 range has no longer prefix than an address.
pub(super) const PREFIX: &str = concat!("!has(self.prefix) || self.prefix <= 32 || ", is_ipv6!("self"));

/// Also if the range has it from the pool.
pub(super) const POOL_PREFIX: &str = concat!(
    "!has(self.prefix) || self.prefix <= 32 || !has(self.pools) || self.pools.all(r, has(r.prefix) || ",
    is_ipv6!("r"),
    ")"
);

/// A random choice needs the number of addresses.
pub(super) const RANDOM: &str = "!has(self.allocationStrategy) || self.allocationStrategy != 'random' \
     || !has(self.pools) || self.pools.all(r, has(r.end) || has(r.subnet))";
