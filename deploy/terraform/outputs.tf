output "beam_options" {
  description = "The options of `recordmill build … --runner dataflow -- …`, but for the image."
  value = join(" ", [
    "--project=${var.project}",
    "--region=${var.region}",
    "--temp_location=gs://${google_storage_bucket.temp.name}/temp",
    "--service_account_email=${google_service_account.worker.email}",
    "--subnetwork=regions/${var.region}/subnetworks/${google_compute_subnetwork.workers.name}",
  ])
}

output "datasets" {
  description = "The folder of datasets: give --output a folder in it."
  value       = "gs://${google_storage_bucket.datasets.name}/datasets"
}

output "driver" {
  description = "The account of the template's job, or of a driver that runs elsewhere."
  value       = google_service_account.driver.email
}

output "worker" {
  description = "The account of the machines that do the work."
  value       = google_service_account.worker.email
}

output "registry" {
  description = "Push the image there, and give its digest as the variable `image`."
  value = join("/", [
    "${google_artifact_registry_repository.images.location}-docker.pkg.dev",
    google_artifact_registry_repository.images.project,
    google_artifact_registry_repository.images.name,
    "recordmill",
  ])
}

output "template" {
  description = "The Flex Template; empty until the variable `image` is given."
  value       = one([for object in google_storage_bucket_object.template : "gs://${object.bucket}/${object.name}"])
}
