//! What needs attention and why, beside hosts.

use coordinator_api::seed_image::SeedImage;
use e2e::lifecycle::NAMESPACE;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
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
