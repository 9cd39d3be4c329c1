variable "project" {
  description = "The id of the project that everything is made in."
  type        = string

  validation {
    condition     = can(regex("^[a-z][-a-z0-9]{4,28}[a-z0-9]$", var.project))
    error_message = "A project's id has 6 to 30 lower-case letters, digits and hyphens."
  }
}

variable "region" {
  description = "The region of buckets, images, network and jobs, such as europe-west1."
  type        = string

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]{1,2}$", var.region))
    error_message = "A region, such as europe-west1; a zone, such as europe-west1-b, is none."
  }
}

variable "name" {
  description = "The prefix of every name: two installations in one project need two."
  type        = string
  default     = "recordmill"

  validation {
    condition     = can(regex("^[a-z][-a-z0-9]{1,18}[a-z0-9]$", var.name))
    error_message = "A name has 3 to 20 lower-case letters, digits and hyphens: accounts' names have 30 at most."
  }
}

variable "source_buckets" {
  description = "Buckets with raw data, which drivers and workers may read."
  type        = set(string)
  default     = []
}

variable "image" {
  description = "The image in the registry, with its digest; empty before the first push, and the template is left out."
  type        = string
  default     = ""

  validation {
    condition     = var.image == "" || can(regex("@sha256:[0-9a-f]{64}$", var.image))
    error_message = "The image ends with @sha256: and its digest, since the bytes of a dataset depend on it."
  }
}

variable "launchers" {
  description = "Who may start builds, such as user:ada@example.com or serviceAccount:airflow@my-project.iam.gserviceaccount.com."
  type        = set(string)
  default     = []
}

variable "schedules" {
  description = "Builds by name, such as { emoji = { spec = \"gs://…/emoji.yaml\", output = \"gs://…/emoji\", cron = \"0 3 * * *\" } }."
  type = map(object({
    spec      = string
    output    = string
    cron      = string
    time_zone = optional(string, "Etc/UTC")
  }))
  default = {}

  validation {
    condition     = alltrue([for name in keys(var.schedules) : can(regex("^[a-z][-a-z0-9]{0,38}[a-z0-9]$", name))])
    error_message = "A schedule's name, which is part of its jobs' names, has 2 to 40 lower-case letters, digits and hyphens."
  }
}

variable "temp_days" {
  description = "After so many days temporary and staged files are deleted; longer than any build takes."
  type        = number
  default     = 14
}

variable "subnetwork_range" {
  description = "The workers' private addresses: a /20 has 4,092 of them."
  type        = string
  default     = "10.128.0.0/20"
}
