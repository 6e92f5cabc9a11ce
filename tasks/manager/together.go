package manager

// When one task of a stage with Together fails, all such tasks go back to one place, so they have
// one attempt: the job's. It rises when one or more of them lose their worker, fail or are fenced,
// and when the job starts. Then all start in the new attempt, including those that have ended in an
// older one, because it is unknown whether that end counts. So a waiting task was never in the
// job's attempt. They are placed one by one, as workers and pace permit: those that have started
// wait for the others in the log.

// together returns those tasks of a job, in order.
func (c *Core) together(j *job) (all []*task) {
	for _, t := range c.of(j) {
		if j.together(t) {
			all = append(all, t)
		}
	}
	return all
}

func (j *job) together(t *task) bool {
	return t.key.Stage < len(j.Stages) && j.Stages[t.key.Stage].Together
}

// again restarts them in a new attempt.
func (c *Core) again(j *job, why string) []*task {
	all := c.together(j)
	if len(all) > 0 {
		j.attempt++
	}
	for _, t := range all {
		t.leave(why)
	}
	return all
}

// leave takes a task out of its attempt.
func (t *task) leave(why string) {
	t.listed = t.listed || t.state == placed || t.state == ended
	t.state, t.nonce, t.why, t.confirmed = waiting, "", why, false
}

// align derives the job's attempt from what an earlier manager has written. If that manager stopped
// in the middle of placing an attempt, the tasks of older attempts join it; if it had started to
// withdraw the attempt, align starts a new one.
func (c *Core) align(j *job) {
	all := c.together(j)
	for _, t := range all {
		j.attempt = max(j.attempt, t.attempt)
	}
	if j.phase != Running {
		return
	}
	over := j.attempt == 0 // nothing was placed yet
	for _, t := range all {
		in := t.state == placed || t.state == ended
		over = over || !in && t.attempt == j.attempt
		if in && t.attempt < j.attempt {
			t.leave("the job has restarted")
		}
	}
	if over {
		c.again(j, "the job has restarted")
	}
}

// withdraw clears the placements of waiting tasks: otherwise their workers would continue to run an
// attempt that can no longer commit.
func (c *Core) withdraw(j *job) {
	for _, t := range c.together(j) {
		if t.listed && t.state != placed {
			t.listed = false
			c.write(Placement{Task: t.key, Attempt: t.attempt})
		}
	}
}
