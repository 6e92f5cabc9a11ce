# shellcheck shell=bash
set -euo pipefail
# The hosts file, and what runs on each host because of it.
#
#   # a comment
#   option cluster NAME            the cluster's name (default tailrace)
#   option insecure                no TLS; else keys are made for the run (keys.sh)
#   option checkpoints none        no Redis on the control host; or the URL of another
#   option identity FILE           the SSH key (default: yours, or the agent's)
#   option known-hosts FILE        the hosts' keys (default: taken over at first sight,
#                                  kept in the state directory)
#   ROLE NAME ADDRESS SSH-TARGET [KEY=VALUE…]
#
# ROLE: control (etcd, task manager, Redis, and where the sweep runs), sequencer,
# storage, compute (workers), input (workers of the sources; without such a line compute
# takes the sources too). ADDRESS is where the others reach it, SSH-TARGET (USER@HOST)
# where you do. A host may have several lines; a process is called NAME, or NAME-ROLE if
# NAME does not begin with the role. Keys:
#
#   home=DIR      the host's directory for programs, keys, logs (/opt/tailrace)
#   data=DIR      of this line; each role has a directory below it (HOME/NAME)
#   port=N http=N where it listens; readiness and metrics (see the table in add_unit's callers)
#   etcd-port=N redis-port=N   of control
#   ssh-port=N    (22)
#   launch=process|systemd     a process of ours (default), or a unit that cloud-init has made
#   redis=yes     Redis is on this line's host, not on control's
#   type=NAME     the instance type, for the estimate of costs
#   TAILRACE_X=V NEXMARK_X=V   any further setting of the role (its --help); TAILRACE_ZONE
#                 of a storage line is its rack or availability zone
#
# Lines with the same SSH target and port are one host, and agree on home and launch.

# What a worker on a compute host runs when input hosts read the sources: all stages of
# all queries but those that read (events, input). clustertest holds it to the queries.
compute_stages=counts,best,sellers,lots,by-category,by-seller,highest,persons,keys,rows,campaigns,points,readings,rides
input_stages=events,input

word='^[A-Za-z0-9._:/@+,=-]+$'

# read_hosts FILE: sets everything below, or says all that is wrong, with its line.
read_hosts() {
	hosts_file=$1
	[ -r "$hosts_file" ] || die "$hosts_file: cannot be read; terraform output -raw hosts_file makes one, scripts/cluster/rehearse.sh one of this machine"
	declare -gA option=([cluster]=tailrace [checkpoints]=redis [identity]='' [known-hosts]='' [insecure]='')
	declare -ga machine_target=() machine_ssh_port=() machine_home=() machine_launch=() machine_id=() machine_lines=() machine_type=() machine_addresses=() machine_data=()
	declare -ga unit_name=() unit_kind=() unit_order=() unit_machine=() unit_line=() unit_address=() unit_port=() unit_probe=() unit_probe_port=() unit_data=() unit_extra=()
	declare -gA machine_of=() name_line=() port_line=() data_unit=()
	declare -ga control=() problems=()
	local line n=0 words base
	redis_line=$(grep -E '^[^#]*[[:space:]]redis=yes([[:space:]]|$)' "$hosts_file" || true)
	base=$(cd "$(dirname "$hosts_file")" && pwd)
	while IFS= read -r line || [ -n "$line" ]; do
		n=$((n + 1))
		line=${line%%#*}
		read -ra words <<<"$line"
		[ ${#words[@]} -gt 0 ] || continue
		case ${words[0]} in
		option) read_option ;;
		control | sequencer | storage | compute | input) read_line ;;
		*) problem "no role is called ${words[0]}: use control, sequencer, storage, compute or input (or option)" ;;
		esac
	done <"$hosts_file"
	whole_cluster
	if [ ${#problems[@]} -gt 0 ]; then
		printf '%s\n' "${problems[@]}" >&2
		die "$hosts_file: ${#problems[@]} mistakes; nothing was started"
	fi
	known_hosts=${option[known-hosts]:-$state/known_hosts}
	ssh_options=(-o BatchMode=yes -o ConnectTimeout=5 -o ServerAliveInterval=3 -o ServerAliveCountMax=3 -o LogLevel=ERROR -o UserKnownHostsFile="$known_hosts" -o GlobalKnownHostsFile=/dev/null)
	if [ -n "${option[known-hosts]}" ]; then
		ssh_options+=(-o StrictHostKeyChecking=yes)
	else
		ssh_options+=(-o StrictHostKeyChecking=accept-new)
	fi
	if [ -n "${option[identity]}" ]; then
		[ -r "${option[identity]}" ] || die "$hosts_file: option identity ${option[identity]}: cannot be read"
		ssh_options+=(-o IdentitiesOnly=yes -i "${option[identity]}")
	fi
}

problem() { problems+=("$hosts_file:$n: $1"); }

read_option() {
	local name=${words[1]-} value=${words[2]-}
	case $name in
	insecure) value=yes ;;
	identity | known-hosts) [ "${value:0:1}" = / ] || value=${value:+$base/$value} ;;
	cluster) ;;
	checkpoints) case $value in redis | none | redis://* | rediss://*) ;; *) problem "option checkpoints $value: use redis, none, or redis://HOST:PORT" ;; esac ;;
	*)
		problem "there is no option ${name:-without a name}: use cluster, insecure, checkpoints, identity, known-hosts"
		return
		;;
	esac
	[[ $value =~ $word ]] || problem "option $name: give a value, without blanks and quotes"
	option[$name]=$value
}

read_line() {
	local role=${words[0]} name=${words[1]-} address=${words[2]-} target=${words[3]-} kv key m
	local -A v=([ssh-port]=22 [home]=/opt/tailrace [launch]=process [data]='' [type]='' [port]='' [http]='' [etcd-port]=2379 [redis-port]=6379 [redis]='')
	local extra=''
	if [ -z "$target" ]; then
		problem "want ROLE NAME ADDRESS SSH-TARGET [KEY=VALUE…], this is: ${words[*]}"
		return
	fi
	for kv in "${words[@]:4}"; do
		key=${kv%%=*}
		case $key in
		redis | ssh-port | home | launch | data | type | port | http | etcd-port | redis-port) v[$key]=${kv#*=} ;;
		TAILRACE_* | NEXMARK_*) extra+=$kv$'\n' ;;
		*) problem "$kv: no such key: use home, data, port, http, etcd-port, redis-port, ssh-port, launch, type, TAILRACE_… or NEXMARK_…" && continue ;;
		esac
		[ "$key" != "$kv" ] && [[ ${kv#*=} =~ $word ]] || problem "$key: give a value, without blanks and quotes"
	done
	for key in ssh-port port http etcd-port redis-port; do
		[ -z "${v[$key]}" ] || { [[ ${v[$key]} =~ ^[0-9]{1,5}$ ]] && [ "${v[$key]}" -ge 1 ] && [ "${v[$key]}" -le 65535 ]; } || problem "$key=${v[$key]}: a port is a number from 1 to 65535"
	done
	case ${v[launch]} in process | systemd) ;; *) problem "launch=${v[launch]}: use process or systemd" ;; esac
	[ "${v[home]:0:1}" = / ] && [ "${v[home]}" != / ] || problem "home=${v[home]}: an absolute path is wanted, of a directory of its own"
	[ -z "${v[data]}" ] || [ "${v[data]:0:1}" = / ] || problem "data=${v[data]}: an absolute path is wanted"
	[[ $name =~ ^[A-Za-z0-9._-]{1,60}$ ]] || problem "name $name: letters, digits, dots and dashes"
	[[ $address =~ ^[A-Za-z0-9.-]+$ ]] || problem "address $address: an IPv4 address or a host name, without a port"
	[[ $target =~ ^([A-Za-z0-9._-]+@)?[A-Za-z0-9][A-Za-z0-9.-]*$ ]] || problem "ssh target $target: want USER@HOST (the port is ssh-port=N)"
	case $name in $role*) ;; *) name=$name-$role ;; esac
	[ -z "${name_line[$name]-}" ] || problem "the name $name is taken by line ${name_line[$name]}"
	name_line[$name]=$n

	key=$target:${v[ssh-port]}
	m=${machine_of[$key]-}
	if [ -z "$m" ]; then
		m=${#machine_target[@]}
		machine_of[$key]=$m
		machine_target+=("$target") machine_ssh_port+=("${v[ssh-port]}") machine_home+=("${v[home]%/}") machine_launch+=("${v[launch]}")
		machine_id+=("${target#*@}-${v[ssh-port]}") machine_lines+=("$name") machine_type+=("${v[type]}") machine_addresses+=("$address") machine_data+=('')
	else
		machine_lines[m]+=", $name"
		machine_addresses[m]+=" $address"
		[ -n "${machine_type[m]}" ] || machine_type[m]=${v[type]}
		[ "${machine_home[m]}" = "${v[home]%/}" ] && [ "${machine_launch[m]}" = "${v[launch]}" ] ||
			problem "$name is on the same host as ${machine_lines[m]%%,*} ($target): home= and launch= must be the same"
	fi
	[ -n "${v[data]}" ] || v[data]=${v[home]%/}/$name
	case $role in
	control)
		control+=("$m")
		add_unit "$name-etcd" etcd 4 "${v[etcd-port]}" tcp "${v[etcd-port]}" "${v[data]}/etcd"
		add_unit "$name-manager" manager 3 "${v[port]:-7002}" http "${v[http]:-8002}" ''
		# Where no other host says that it has Redis.
		[ -n "$redis_line" ] || v[redis]=yes
		;;
	sequencer) add_unit "$name" sequencer 6 "${v[port]:-7000}" http "${v[http]:-8000}" "${v[data]}/sequencer" ;;
	storage) add_unit "$name" storage 5 "${v[port]:-7001}" http "${v[http]:-8001}" "${v[data]}/storage" ;;
	compute) add_unit "$name" compute 2 "${v[port]:-7003}" http "${v[http]:-8003}" '' ;;
	input) add_unit "$name" input 2 "${v[port]:-7004}" http "${v[http]:-8004}" '' ;;
	esac
	if [ "${v[redis]}" = yes ] && [ "${option[checkpoints]}" = redis ]; then
		add_unit "$name-redis" redis 4 "${v[redis-port]}" tcp "${v[redis-port]}" "${v[data]}/redis"
	fi
}

# add_unit NAME KIND ORDER PORT PROBE PROBE-PORT DATA: one process, as the line says.
# ORDER is when it is ended: workers first, what they write to last.
add_unit() {
	local p at i
	for p in "$4" "$6"; do
		at=$address:$p
		[ -z "${port_line[$at]-}" ] || [ "${port_line[$at]}" = "$1" ] || problem "$1: port $p of $address is ${port_line[$at]}'s already; give another with port=, http=, etcd-port= or redis-port="
		port_line[$at]=$1
	done
	if [ "${v[launch]}" = systemd ]; then
		for i in "${!unit_name[@]}"; do
			[ "${unit_machine[$i]}" != "$m" ] || [ "${unit_kind[$i]/input/compute}" != "${2/input/compute}" ] || problem "$1: ${unit_name[$i]} is that service on this host already; systemd has one each: launch=process can have several"
		done
	fi
	unit_name+=("$1") unit_kind+=("$2") unit_order+=("$3") unit_machine+=("$m") unit_line+=("$n") unit_address+=("$address") unit_port+=("$4") unit_probe+=("$5")
	unit_probe_port+=("$6") unit_data+=("$7") unit_extra+=("$extra")
	if [ -n "$7" ]; then
		[ -z "${data_unit[$m:$7]-}" ] || problem "$1: $7 is the directory of ${data_unit[$m:$7]} already; give another data="
		data_unit[$m:$7]=$1
		machine_data[m]+="$7 "
	fi
}

# addresses KIND: ADDRESS:PORT of all of a kind, with commas.
addresses() {
	local i all=''
	for i in "${!unit_name[@]}"; do
		[ "${unit_kind[$i]}" != "$1" ] || all+=,${unit_address[$i]}:${unit_port[$i]}
	done
	echo "${all#,}"
}

count() {
	local kind i=0
	for kind in "${unit_kind[@]}"; do [ "$kind" != "$1" ] || i=$((i + 1)); done
	echo $i
}

# whole_cluster: what no single line says.
whole_cluster() {
	local n
	n="end"
	[ ${#control[@]} -eq 1 ] || problem "${#control[@]} control lines: exactly one is wanted (etcd, the task manager and the sweep are there)"
	local s
	s=$(count sequencer)
	[ "$s" -ge 3 ] && [ $((s % 2)) -eq 1 ] || problem "$s sequencer lines: 3 or 5, an odd number, so that there are majorities when one is lost"
	[ "$(count storage)" -ge 3 ] || problem "$(count storage) storage lines: at least 3, since each record has three copies"
	[ "${option[checkpoints]}" != redis ] || [ "$(count redis)" -eq 1 ] || problem "$(count redis) lines with redis=yes: one is wanted"
	[ "$(count compute)" -ge 1 ] || problem "no compute line: no host would run the queries"
}

# unit_environment I: the settings of unit I, one NAME=VALUE a line. Each flag of the
# programs can be set in the environment, so this is all that a unit is told.
unit_environment() {
	local i=$1 m=${unit_machine[$1]} kind=${unit_kind[$1]} p=TAILRACE at
	local -i k=0 j
	at=${unit_address[$i]}:${unit_port[$i]}
	case $kind in compute | input) p=NEXMARK ;; esac
	echo "${p}_CLUSTER=${option[cluster]}"
	echo "${p}_LISTEN=$at"
	[ "${unit_probe[$i]}" = tcp ] || echo "${p}_HTTP=${unit_address[$i]}:${unit_probe_port[$i]}"
	[ -z "${unit_data[$i]}" ] || echo "${p}_DATA=${unit_data[$i]}"
	security $p "$m"
	case $kind in
	sequencer)
		local peers=''
		for j in "${!unit_name[@]}"; do
			[ "${unit_kind[$j]}" = sequencer ] || continue
			k=$((k + 1))
			peers+=,$k=${unit_address[$j]}:${unit_port[$j]}
			[ "$j" != "$i" ] || echo "TAILRACE_ID=$k"
		done
		echo "TAILRACE_PEERS=${peers#,}"
		# Needed the first time, and harmless later: a directory that was lost is
		# refused by the other sequencers all the same.
		echo "TAILRACE_BOOTSTRAP=true"
		;;
	storage) echo "TAILRACE_SEQUENCERS=$(addresses sequencer)" ;;
	manager)
		echo "TAILRACE_NAME=${unit_name[$i]}"
		echo "TAILRACE_LOG=$(addresses sequencer)"
		echo "TAILRACE_ETCD=$(addresses etcd)"
		echo "TAILRACE_TIMEOUT=${ready_timeout}s"
		echo "TAILRACE_CHECKPOINTS=$(checkpoints)"
		;;
	compute | input)
		echo "NEXMARK_NAME=${unit_name[$i]}"
		echo "NEXMARK_LOG=$(addresses sequencer)"
		echo "NEXMARK_LOG_TIMEOUT=${ready_timeout}s"
		echo "NEXMARK_CHECKPOINTS=$(checkpoints)"
		if [ "$kind" = input ]; then
			echo "NEXMARK_STAGE=$input_stages"
		elif [ "$(count input)" -gt 0 ]; then
			echo "NEXMARK_STAGE=$compute_stages"
		fi
		;;
	esac
	printf %s "${unit_extra[$i]}"
}

security() {
	local tls=${machine_home[$2]}/tls
	if [ -n "${option[insecure]}" ]; then
		echo "$1_INSECURE=true"
	else
		printf '%s\n' "$1_TLS_CERT=$tls/cert.pem" "$1_TLS_KEY=$tls/key.pem" "$1_TLS_CA=$tls/ca.pem"
	fi
}

checkpoints() {
	case ${option[checkpoints]}${option[insecure]} in
	none*) ;;
	redisyes) echo "redis://$(addresses redis)" ;;
	*://*) echo "${option[checkpoints]}" ;;
	*) echo "rediss://$(addresses redis)" ;;
	esac
}

# unit_command I: its command line, one word a line.
unit_command() {
	local i=$1 home=${machine_home[${unit_machine[$1]}]}
	case ${unit_kind[$i]} in
	compute | input) printf '%s\n' "$home/bin/nexmark" worker ;;
	redis)
		# Protected mode lets loopback in only. Here it is the certificates that keep others
		# out, or with `option insecure` nobody.
		printf '%s\n' redis-server --dir "${unit_data[$i]}" --save '' --appendonly yes --appendfsync everysec --daemonize no --set-proc-title no
		# From here on (--bind) it is also what the unit of systemd is told.
		printf '%s\n' --bind "${unit_address[$i]}" --protected-mode no
		if [ -n "${option[insecure]}" ]; then
			printf '%s\n' --port "${unit_port[$i]}"
		else
			printf '%s\n' --port 0 --tls-port "${unit_port[$i]}" --tls-cert-file "$home/tls/cert.pem" --tls-key-file "$home/tls/key.pem" --tls-ca-cert-file "$home/tls/ca.pem"
		fi
		;;
	*) printf '%s\n' "$home/bin/tailrace" "${unit_kind[$i]}" ;;
	esac
}
