// Package autoscale gives a stage of a running job the number of tasks that package policy decides:
// each second a Meter makes a sample of what the tasks show of themselves, the policy decides, and the
// job is rescaled, as if a user had asked for it.
//
// The bounds of a job's stages are in the log's metadata (tags.AutoscaleKey), so that they hold in
// later processes of the job, too. What a policy has learned is in memory only.
package autoscale
