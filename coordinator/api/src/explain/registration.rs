//! Reasons of `MachineRegistration`, and of fields.

use super::{Entry, act, fine};
use crate::conditions::Reason::*;

pub(super) const REASONS: &[Entry] = &[
    (SuccessfullyCreated, fine("the registration has a token, and hosts can register")),
    (
        FieldUnsupported,
        act(
            "a field asks for what is not supported and cannot be left out without harm; the message names it",
            "remove or correct the field that the message names",
        ),
    ),
    (
        FieldWithoutEffect,
        act("fields are set that have no effect here", "remove the fields that the message names"),
    ),
    (FieldsSupported, fine("every field that is set has an effect")),
    (
        DuplicateToken,
        act("two MachineRegistrations have one token", "change spec.token of one of the two, or remove it"),
    ),
    (
        TokenExpired,
        act(
            "spec.tokenExpiresAt is over: hosts without an inventory are refused",
            "to admit new hosts, set spec.tokenExpiresAt to a later time, or remove it",
        ),
    ),
    (
        SoftwareKeysApproved,
        act(
            "hosts may prove a key in a file and wait for no approval: the registration URL alone gets a host admitted",
            "set spec.approval: Manual, or demand a TPM by emulate-tpm: false; or limit the token by spec.tokenExpiresAt and spec.maxHosts",
        ),
    ),
    (AdmissionGuarded, fine("new hosts wait for an operator, or prove a TPM")),
    (
        HostRefused,
        act(
            "a host with the token of this registration was refused; the message names code and host",
            "as the message says; the codes are in docs/reference/events.md",
        ),
    ),
    (NoHostRefused, fine("no host was refused within half an hour")),
];
