# A network without a way to the internet: machines have private addresses only, and reach Google's services (storage,
# registry, Dataflow, logging) through Private Google Access.

resource "google_compute_network" "builds" {
  name                    = var.name
  auto_create_subnetworks = false

  depends_on = [google_project_service.enabled]
}

resource "google_compute_subnetwork" "workers" {
  name                     = "${var.name}-workers"
  network                  = google_compute_network.builds.id
  region                   = var.region
  ip_cidr_range            = var.subnetwork_range
  private_ip_google_access = true
}

# Dataflow tags its machines `dataflow`; they exchange data with each other on these two ports.
resource "google_compute_firewall" "workers" {
  name        = "${var.name}-workers"
  network     = google_compute_network.builds.id
  direction   = "INGRESS"
  source_tags = ["dataflow"]
  target_tags = ["dataflow"]

  allow {
    protocol = "tcp"
    ports    = ["12345-12346"]
  }
}
