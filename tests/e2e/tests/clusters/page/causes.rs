//! What needs attention and why, beside hosts.

use anyhow::Context as _;
use coordinator_api::inventory::MachineInventory;
use coordinator_api::machine::BaremetalMachine;
use coordinator_api::names::annotation;
use coordinator_api::seed_image::SeedImage;
use e2e::lifecycle::NAMESPACE;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::Story;

/// Objects that are no hosts, more than are shown at once.
pub(super) async fn check_others(story: &Story<'_>) -> anyhow::Result<()> {
    story.step("page: objects that are no hosts need attention");
    let images: Api<SeedImage> = Api::namespaced(story.setup.environment.management.admin.clone(), NAMESPACE);
    let names = ["a", "b", "c", "d"].map(|letter| format!("image-{letter}"));
    for name in &names {
        let spec =
            json!({ "baseImage": "https://bases.example.com/os.iso", "registrationRef": { "name": "none" } });
        let image = json!({ "metadata": { "name": name }, "spec": spec });
        images.create(&PostParams::default(), &serde_json::from_value(image)?).await?;
    }
    let browser = &story.browser;
    let group = "[data-reason=RegistrationNotFound]";
    story.shows(&format!("{group} h3"), &["RegistrationNotFound", "4"]).await?;
    story.shows(&format!("{group} .more"), &["2 more"]).await?;
    browser.read(&format!("document.querySelector('{group} .more').click()")).await?;
    let are_shown = format!("document.querySelectorAll('{group} .entry').length === 4");
    browser.until("all four", &are_shown).await?;
    let has_focus = format!("document.activeElement === document.querySelectorAll('{group} .name')[2]");
    browser.until("the first new one to have the focus", &has_focus).await?;
    for name in &names {
        images.delete(name, &DeleteParams::default()).await?;
    }
    story.shows("#attention-title", &["Nothing needs attention"]).await
}

/// The cause is in another object than the one that is asked about.
pub(super) async fn check_why(story: &Story<'_>, host: &str) -> anyhow::Result<()> {
    story.step("page: the causes of an object, as they change");
    let admin = &story.setup.environment.management.admin;
    let browser = &story.browser;
    let inventories: Api<MachineInventory> = Api::namespaced(admin.clone(), NAMESPACE);
    let inventory = inventories.get(host).await?;
    let holder = |key: &str| inventory.annotations().get(key).cloned().context("a host without a holder");
    let (machine, own) = (holder(annotation::OWNER_MACHINE)?, holder(annotation::OWNER_BAREMETAL_MACHINE)?);
    browser.read(&format!("location.hash = '#/why/machine/{NAMESPACE}/{machine}'")).await?;
    story.shows(".chain", &[&format!("machine/{machine}"), "as intended"]).await?;
    let machines: Api<BaremetalMachine> = Api::namespaced(admin.clone(), NAMESPACE);
    let pause = async |value: Option<&str>| {
        let patch = json!({ "metadata": { "annotations": { annotation::PAUSED: value } } });
        machines.patch(&own, &PatchParams::default(), &Patch::Merge(patch)).await
    };
    pause(Some("")).await?;
    story.shows(".chain", &[&format!("baremetalmachine/{own}"), "Paused"]).await?;
    pause(None).await?;
    let is_well = "!document.querySelector('.chain').innerText.includes('Paused')";
    browser.until("the cause to be gone", is_well).await
}
