package manager

// Tasks of which a Stage says that they are together go back to one place when one of them
// fails, so they have one attempt: the job's. It rises when one of them loses its worker,
// fails or is fenced, however many do at a time, and when the job begins. Then all begin
// in the new one, those too that have ended in an older one, for nobody knows whether that
// counts. So a task that waits was never in the job's attempt. They are placed one by one, as workers and pace allow: those that have begun
// wait for the others in the log.

// together returns the tasks of a job that are, in order.
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

// again lets them begin in a new attempt.
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

// align takes up the job's attempt from what an earlier manager has written. Where that
// ended in the middle of placing an attempt, those go into it that are in an older one;
// where it had begun to withdraw it, there is another one.
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
			t.leave("the job has begun again")
		}
	}
	if over {
		c.again(j, "the job has begun again")
	}
}

// withdraw says of those that wait that they are nobody's: their workers would run on in
// an attempt of which nothing will count.
func (c *Core) withdraw(j *job) {
	for _, t := range c.together(j) {
		if t.listed && t.state != placed {
			t.listed = false
			c.write(Placement{Task: t.key, Attempt: t.attempt})
		}
	}
}
