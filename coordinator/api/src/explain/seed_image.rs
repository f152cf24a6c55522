//! Reasons of `SeedImage`.

use super::{Entry, act, fine, wait};
use crate::conditions::Reason::*;

pub(super) const REASONS: &[Entry] = &[
    (
        RegistrationNotFound,
        act(
            "spec.registrationRef names no MachineRegistration, one that is not ready, or one of another namespace that does not grant it",
            "create or correct the MachineRegistration, or the reference",
        ),
    ),
    (ResourcesSuccessfullyCreated, fine("the ISO can be downloaded")),
    (
        SeedImageBuildOngoing,
        wait(
            "the base ISO is being fetched or searched, by the leader or by the replicas that the message names",
            "none: it takes as long as the download; where it lasts, the logs of these replicas have the cause",
        ),
    ),
    (
        SeedImageBuildFailure,
        act("the ISO cannot be made; the condition Ready has the cause as its reason", "as the message says"),
    ),
    (SeedImageBuildSuccess, fine("the ISO can be downloaded")),
    (
        SeedImageBuildDeadline,
        fine(
            "spec.cleanupAfterMinutes is over, and the download is closed; spec.retriggerBuild: true opens another one",
        ),
    ),
    (
        BaseImageInvalid,
        act(
            "the text of spec.baseImage, the image or the ISO in it is not usable; file:/// needs --base-image-directory",
            "correct spec.baseImage as the message says",
        ),
    ),
    (
        BaseImageHostUnknown,
        act(
            "DNS of the coordinator has no address of the registry or server",
            "correct spec.baseImage, or DNS of the coordinator",
        ),
    ),
    (
        BaseImageUnreachable,
        act(
            "the server of the base refuses connections or answers with an error",
            "the log of the coordinator has the cause; it is tried again within thirty seconds",
        ),
    ),
    (
        BaseImageUntrusted,
        act(
            "the certificate of the server is signed by a private authority, or is for another name",
            "put the authority into a Secret under ca.crt and name it in spec.baseImageCASecret",
        ),
    ),
    (
        BaseImageUnauthorized,
        act(
            "the registry demands credentials, or those of spec.baseImagePullSecret are wrong; many registries answer so for images that do not exist",
            "create a Secret of type kubernetes.io/dockerconfigjson and name it in spec.baseImagePullSecret",
        ),
    ),
    (
        BaseImageSecretInvalid,
        act(
            "spec.baseImagePullSecret or spec.baseImageCASecret names a Secret that is missing or of another form",
            "create or correct the Secret that the message names",
        ),
    ),
    (
        BaseImageNotFound,
        act("there is no such tag, digest or file", "push the image, or correct spec.baseImage"),
    ),
    (
        BaseImageDigestMismatch,
        act(
            "the base is not what spec.baseImageDigest says, or the registry sent other bytes",
            "correct spec.baseImageDigest, or find out what changed the base",
        ),
    ),
    (
        BaseImageWithoutISO,
        act("no layer of the image has an ISO 9660 file", "build the image with the ISO in /elemental-iso/"),
    ),
    (
        BaseImageWithSeveralISOs,
        act(
            "the layers of the image have several ISO 9660 files",
            "build the image with one ISO in /elemental-iso/",
        ),
    ),
    (
        BaseImagePlatformMismatch,
        act(
            "the image, or spec.targetPlatform, is not for the platform of the coordinator's agent",
            "name an image for the platform in the message in spec.baseImage, and correct spec.targetPlatform",
        ),
    ),
    (
        BaseImageTooLarge,
        act(
            "ISO and layers have more bytes than --base-image-size of the coordinator allows",
            "raise --base-image-size, or use a smaller image",
        ),
    ),
    (
        BaseImageTimedOut,
        act(
            "the base did not arrive within --base-image-timeout of the coordinator",
            "raise --base-image-timeout, or use a nearer registry; it is tried again",
        ),
    ),
    (BaseImageListed, fine("the image catalog has an image of this repository and tag")),
    (
        BaseImageUnlisted,
        act(
            "no entry of the image catalog has the repository of the base without -iso, and its tag: hosts are installed with a system that no machine gets",
            "correct spec.baseImage, or add the image to the image catalog; nothing is held up",
        ),
    ),
];
