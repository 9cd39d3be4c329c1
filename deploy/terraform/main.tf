# What builds on Dataflow need in a project: buckets, a registry, and the template.

locals {
  services = [
    "artifactregistry.googleapis.com",
    "cloudscheduler.googleapis.com",
    "compute.googleapis.com",
    "dataflow.googleapis.com",
    "iam.googleapis.com",
    "logging.googleapis.com",
    "storage.googleapis.com",
  ]
  template = {
    image    = var.image
    sdkInfo  = { language = "PYTHON" }
    metadata = jsondecode(file("${path.module}/../dataflow/metadata.json"))
  }
}

resource "google_project_service" "enabled" {
  for_each           = toset(local.services)
  service            = each.key
  disable_on_destroy = false # others in the project may use it
}

# Datasets and specs. Objects of a version never change; a deleted one can be brought back for a week.
resource "google_storage_bucket" "datasets" {
  name                        = "${var.project}-${var.name}-datasets"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  soft_delete_policy {
    retention_duration_seconds = 604800
  }

  lifecycle_rule {
    condition {
      age = 7
    }
    action {
      type = "AbortIncompleteMultipartUpload"
    }
  }

  depends_on = [google_project_service.enabled]
}

# Staged graphs and temporary files: worthless after a build, so deleted by age and not kept softly.
resource "google_storage_bucket" "temp" {
  name                        = "${var.project}-${var.name}-temp"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = true

  soft_delete_policy {
    retention_duration_seconds = 0
  }

  lifecycle_rule {
    condition {
      age = var.temp_days
    }
    action {
      type = "Delete"
    }
  }

  depends_on = [google_project_service.enabled]
}

resource "google_artifact_registry_repository" "images" {
  location      = var.region
  repository_id = var.name
  format        = "DOCKER"
  description   = "Images of Recordmill: driver, launcher and workers are one"

  docker_config {
    immutable_tags = true
  }

  depends_on = [google_project_service.enabled]
}

# The Flex Template, as `gcloud dataflow flex-template build` writes it.
resource "google_storage_bucket_object" "template" {
  count        = var.image == "" ? 0 : 1
  bucket       = google_storage_bucket.datasets.name
  name         = "templates/recordmill.json"
  content      = jsonencode(local.template)
  content_type = "application/json"
}
