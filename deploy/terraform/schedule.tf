# Nightly builds: Cloud Scheduler launches the Flex Template. While a job of the same name runs, Dataflow refuses another,
# so no night joins the one before it.

resource "google_service_account" "scheduler" {
  account_id   = "${var.name}-scheduler"
  display_name = "Recordmill: launches the nightly builds"
}

resource "google_cloud_scheduler_job" "nightly" {
  for_each    = var.image == "" ? {} : var.schedules
  name        = "${var.name}-${each.key}"
  description = "Builds ${each.value.output}"
  region      = var.region
  schedule    = each.value.cron
  time_zone   = each.value.time_zone

  # Only of a launch that was refused: a build that fails is Dataflow's to repeat, or a person's to look at.
  retry_config {
    retry_count          = 3
    min_backoff_duration = "60s"
  }

  http_target {
    http_method = "POST"
    uri         = "https://dataflow.googleapis.com/v1b3/projects/${var.project}/locations/${var.region}/flexTemplates:launch"
    headers     = { "Content-Type" = "application/json" }
    body = base64encode(jsonencode({
      launchParameter = {
        jobName              = "${var.name}-${each.key}"
        containerSpecGcsPath = "gs://${google_storage_bucket.datasets.name}/templates/recordmill.json"
        parameters = {
          spec                  = each.value.spec
          output                = each.value.output
          sdk_container_image   = var.image
          build_service_account = google_service_account.worker.email
        }
        environment = {
          serviceAccountEmail = google_service_account.driver.email
          subnetwork          = "regions/${var.region}/subnetworks/${google_compute_subnetwork.workers.name}"
          ipConfiguration     = "WORKER_IP_PRIVATE"
          tempLocation        = "gs://${google_storage_bucket.temp.name}/temp"
          stagingLocation     = "gs://${google_storage_bucket.temp.name}/staging"
        }
      }
    }))

    oauth_token {
      service_account_email = google_service_account.scheduler.email
    }
  }

  depends_on = [google_project_service.enabled, google_storage_bucket_object.template]
}
