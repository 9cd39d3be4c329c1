# Two accounts. Workers read sources and write datasets; the driver may also start and cancel jobs, as the workers'
# account and no other. Neither has a key, and neither may change the project.

resource "google_service_account" "worker" {
  account_id   = "${var.name}-worker"
  display_name = "Recordmill: machines of builds"
}

resource "google_service_account" "driver" {
  account_id   = "${var.name}-driver"
  display_name = "Recordmill: drivers of builds"
}

locals {
  accounts = {
    worker = google_service_account.worker.member
    driver = google_service_account.driver.member
  }
  # The account and the bucket of each grant.
  written = {
    for pair in setproduct(keys(local.accounts), ["datasets", "temp"]) :
    "${pair[0]}-${pair[1]}" => { member = local.accounts[pair[0]], bucket = local.buckets[pair[1]] }
  }
  read = {
    for pair in setproduct(keys(local.accounts), var.source_buckets) :
    "${pair[0]}-${pair[1]}" => { member = local.accounts[pair[0]], bucket = pair[1] }
  }
  buckets = {
    datasets = google_storage_bucket.datasets.name
    temp     = google_storage_bucket.temp.name
  }
}

# To work as a machine of Dataflow: get work, report, log. The driver needs it as the machine of the template's job.
resource "google_project_iam_member" "dataflow_worker" {
  for_each = local.accounts
  project  = var.project
  role     = "roles/dataflow.worker"
  member   = each.value
}

# To create, look at and cancel jobs.
resource "google_project_iam_member" "driver_dataflow" {
  project = var.project
  role    = "roles/dataflow.developer"
  member  = google_service_account.driver.member
}

# To start machines that work as the workers' account, and the template's job as its own.
resource "google_service_account_iam_member" "driver_acts" {
  for_each = {
    worker = google_service_account.worker.name
    driver = google_service_account.driver.name
  }
  service_account_id = each.value
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.driver.member
}

# Objects of our own buckets: read, list, create, replace (leases), delete (prune). No ACLs, no bucket settings.
resource "google_storage_bucket_iam_member" "write" {
  for_each = local.written
  bucket   = each.value.bucket
  role     = "roles/storage.objectUser"
  member   = each.value.member
}

# Beam looks at a bucket before it stages or lists: storage.buckets.get.
resource "google_storage_bucket_iam_member" "look" {
  for_each = local.written
  bucket   = each.value.bucket
  role     = "roles/storage.legacyBucketReader"
  member   = each.value.member
}

resource "google_storage_bucket_iam_member" "read" {
  for_each = local.read
  bucket   = each.value.bucket
  role     = "roles/storage.objectViewer"
  member   = each.value.member
}

resource "google_artifact_registry_repository_iam_member" "pull" {
  for_each   = local.accounts
  project    = google_artifact_registry_repository.images.project
  location   = google_artifact_registry_repository.images.location
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.reader"
  member     = each.value
}

# People and schedulers that start the template, or run a driver elsewhere as the driver's account.
locals {
  launchers = merge(
    { for member in var.launchers : member => member },
    { scheduler = google_service_account.scheduler.member },
  )
}

resource "google_project_iam_member" "launchers" {
  for_each = local.launchers
  project  = var.project
  role     = "roles/dataflow.developer"
  member   = each.value
}

resource "google_service_account_iam_member" "launchers" {
  for_each           = local.launchers
  service_account_id = google_service_account.driver.name
  role               = "roles/iam.serviceAccountUser"
  member             = each.value
}

resource "google_storage_bucket_iam_member" "launchers" {
  for_each = local.launchers
  bucket   = google_storage_bucket.datasets.name
  role     = "roles/storage.objectViewer"
  member   = each.value
}
