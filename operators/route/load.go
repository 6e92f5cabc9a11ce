package route

// Tasks returns the load of each task: the sum over the groups that it owns.
func Tasks(load []int64, owners []int, tasks int) []int64 {
	of := make([]int64, tasks)
	for g, owner := range owners {
		of[owner] += load[g]
	}
	return of
}

// Degree returns the least of the tasks' loads divided by the greatest: 1 if they are equal, or all 0;
// 0 if a task has none. shares are the parts that the tasks are to have, in any unit; nil: equal ones.
func Degree(tasks []int64, shares []float64) float64 {
	if len(tasks) == 0 {
		return 1
	}
	least, most := perShare(tasks[0], shares, 0), perShare(tasks[0], shares, 0)
	for i, n := range tasks {
		l := perShare(n, shares, i)
		least, most = min(least, l), max(most, l)
	}
	if most == 0 {
		return 1
	}
	return least / most
}

// Extra returns the greatest of the tasks' loads divided by their mean, less 1: 0 if they are equal, or
// all 0. Loads count per share, whose mean is 1 then.
func Extra(tasks []int64, shares []float64) float64 {
	var most, sum, parts float64
	for i, n := range tasks {
		most, sum = max(most, perShare(n, shares, i)), sum+float64(n)
		parts += share(shares, i)
	}
	if sum == 0 {
		return 0
	}
	return most/(sum/parts) - 1
}

func share(shares []float64, i int) float64 {
	if shares == nil {
		return 1
	}
	return shares[i]
}

func perShare(n int64, shares []float64, i int) float64 { return float64(n) / share(shares, i) }

// Moved returns how many groups have another owner.
func Moved(from, to []int) (n int) {
	for g := range from {
		if from[g] != to[g] {
			n++
		}
	}
	return n
}
