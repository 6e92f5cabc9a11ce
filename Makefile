# A thin door to scripts/: each target is one script, which can be read and run
# without make.
.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: release cluster-test setup build test race lint format generate bench growth surge recovery snapshots endless sweep smoke sim sim-servers sim-embedded sim-jobs sim-jobs-long job-bugs sim-rescale sim-epochs rescaled-answers balance-kills keyed-answers sim-long sim-bugs fault matrices job-faults rescale-faults rescale-kills rescale-flat mutants soak-kill soak terraform check
setup: ## install what building and testing need
	scripts/setup.sh
build: ## bin/nexmark and the other programs
	scripts/build.sh
release: ## static binaries for linux amd64 and arm64, into dist/
	scripts/release.sh
test: ## unit tests
	scripts/test.sh
race: ## unit tests of the packages with goroutines, under the race detector
	scripts/test.sh --race
lint: ## format, vet, staticcheck
	scripts/lint.sh
format: ## format all Go files
	scripts/lint.sh --fix
generate: ## Go code of the .proto files
	scripts/generate.sh
bench: ## Go benchmarks, into bin/bench.txt, and a table of the queries
	scripts/bench.sh
recovery: ## how state comes back, without snapshots, with, and with a standby
	scripts/recovery.sh
snapshots: ## what snapshots cost
	scripts/snapshots.sh
endless: ## half an hour of query 5: memory and disk stay flat
	scripts/endless.sh
growth: ## how cost grows with tasks, key groups, rate
	scripts/growth.sh
surge: ## a rate that doubles for 30 s and falls again, on a stage that is autoscaled: tasks and latency each second
	TAILRACE_SOAK=1 go test -count=1 -v -run 'TestSurge$$' ./tasks
sweep: ## all queries under all protocols, quickly, into bin/sweep (SPEC=name or file for another)
	scripts/build.sh
	bin/nexmark sweep $${SPEC:-quick} --out bin/sweep/$$(basename $${SPEC:-quick} .yaml)
cluster-test: ## the cluster's scripts over SSH: killed half-way, hosts that die
	TAILRACE_SOAK=1 go test -count=1 -v -timeout 60m ./cmd/tailrace/clustertest
smoke: ## the commands of README.md, docs/tutorial.md and docs/tour.md
	scripts/smoke.sh
sim: ## 10 000 runs of the simulator (TAILRACE_SEEDS=N for others)
	TAILRACE_SEEDS=$${TAILRACE_SEEDS:-10000} go test -v -run TestCluster -timeout 60m ./internal/sim
sim-servers: ## the simulator that runs the servers: SEEDS=N of them (default 100), from SEED=S on; SEED=S alone replays one
	scripts/sim-servers.sh
sim-embedded: ## the simulator that runs the embedded log: SEEDS=N of them (default 100), from SEED=S on; SEED=S alone replays one
	scripts/sim-embedded.sh
sim-jobs: ## random jobs against brute force: SEEDS=N of them (default 1000), from SEED=S on; SEED=S alone replays one
	scripts/sim-jobs.sh
sim-jobs-long: ## 100 000 random jobs: for the night
	SEEDS=$${SEEDS:-100000} scripts/sim-jobs.sh
job-bugs: ## faults of jobs and mistakes in operators, each put back: random jobs must find it; prints after how many
	go run ./internal/mutant/run --list jobs --limit 3h --parallel 1 --json bin/mutants/jobs.json $(ARGS)
fault: ## a cluster of real processes under faults
	go test -v -timeout 20m ./cmd/tailrace/faulttest
upgrade-test: ## processes of the version before are replaced one by one, under load
	scripts/upgrade-test.sh
matrices: ## each query, protocol, fault and crash point with which processes are killed, of which CI takes a part
	TAILRACE_DRAW=all go test -count=1 -v -timeout 120m ./cmd/nexmark ./cmd/tailrace/jobtest/faulttest
job-faults: ## 1000 random faults on jobs (TAILRACE_FAULTS=N, TAILRACE_SEED=S for others)
	TAILRACE_FAULTS=$${TAILRACE_FAULTS:-1000} go test -v -timeout 120m ./cmd/tailrace/jobtest/faulttest -ginkgo.focus random -ginkgo.v
rescale-faults: ## 100 random rescales of jobs on workers, a process killed or stopped in each (TAILRACE_RESCALES=N for others)
	TAILRACE_RESCALES=$${TAILRACE_RESCALES:-100} go test -v -timeout 120m ./cmd/tailrace/jobtest/faulttest -ginkgo.focus 'rescaled at random' -ginkgo.v
mutants: ## break the code on purpose, one line at a time: the quick tests must notice (ARGS="--list engine --only NAME")
	go run ./internal/sim/seeded/overlay -o bin/_overlay
	go run ./internal/mutant/run $(ARGS)
rescale-kills: ## a process that rescales all the time is killed with SIGKILL at random moments, 100 of them in the middle of a rescale (TAILRACE_KILLS=N for others), and another at each point of a rescale
	TAILRACE_KILLS=$${TAILRACE_KILLS:-100} TAILRACE_DRAW=all go test -v -timeout 60m -run 'TestKilledWhileRescaling|TestKilledAtEveryPointOfARescale' ./cmd/nexmark
rescale-flat: ## 64 rescales a minute for 10 minutes: disk, memory and goroutines stay flat (TAILRACE_MINUTES=N for others)
	TAILRACE_MINUTES=$${TAILRACE_MINUTES:-10} go test -v -timeout 120m -run TestManyRescalesLeaveNothing ./tasks
.PHONY: without-handover
without-handover: ## what is left when the package that moves key groups is deleted: builds, vets and tests it
	scripts/without-handover.sh
.PHONY: without-keyed
without-keyed: ## what is left when clocks of keys, balancing and routing tables are deleted: builds, vets and tests it
	scripts/without-keyed.sh
sim-rescale: ## 100 000 jobs whose stages are rescaled (TAILRACE_SEEDS=N for others, TAILRACE_SEED=S replays one): for the night
	TAILRACE_SEEDS=$${TAILRACE_SEEDS:-100000} go test -v -run TestRandomJobs -timeout 60m ./tasks/rescale
sim-epochs: ## 100 000 stages whose routing table is replaced (TAILRACE_SEEDS=N for others, TAILRACE_SEED=S replays one): for the night
	TAILRACE_SEEDS=$${TAILRACE_SEEDS:-100000} go test -v -run TestRandomDomains -timeout 60m ./operators/route/epoch
rescaled-answers: ## NEXMark's queries and the count while stages are rescaled, 200 seeds, against the oracle (TAILRACE_SEEDS=N for others, TAILRACE_SEED=S replays one): for the night
	TAILRACE_SEEDS=$${TAILRACE_SEEDS:-200} go test -v -run TestRescaledAnswers -timeout 120m ./cmd/nexmark
balance-kills: ## 200 SIGKILLs of a job whose key groups move all the time (TAILRACE_KILLS=N for others)
	TAILRACE_KILLS=$${TAILRACE_KILLS:-200} go test -v -run TestKilledWhileBalanced -timeout 60m ./cmd/nexmark
keyed-answers: ## workloads with each grain of clocks, protocol and parallelism, and 20 runs with a delay that is too small (TAILRACE_RUNS=N for others)
	TAILRACE_DRAW=all TAILRACE_RUNS=$${TAILRACE_RUNS:-20} go test -count=1 -v -timeout 60m -run 'TestWorkloadAnswers|TestKilledWorkloads|TestTooSmallADelay' ./cmd/nexmark
sim-long: ## 10 000 seeds of the simulator that runs the servers, then runs of a million operations each: for the night
	SEEDS=$${SEEDS:-10000} scripts/sim-servers.sh
	TAILRACE_SOAK=1 bin/sim-servers.test -test.run '^TestLongRun$$' -test.v -test.timeout 0
sim-bugs: ## faults of the past, each put back: the simulator of the servers must find it within SEEDS=N (default 60); prints after how many
	go run ./internal/sim/seeded/overlay -o bin/_overlay
	TAILRACE_SEEDS=$${SEEDS:-60} TAILRACE_SIM_JOBS=$${TAILRACE_SIM_JOBS:-2} TAILRACE_SIM_SHRINK=0 go run ./internal/mutant/run --list sim --limit 3h $(ARGS)
soak-kill: ## SIGKILL at random moments, for as long as the tests ask
	scripts/soak.sh Kill
soak: ## all long tests
	scripts/soak.sh
terraform: ## terraform/ against the provider's schema and a mocked provider
	scripts/terraform-check.sh
check: ## everything CI runs
	scripts/check.sh
