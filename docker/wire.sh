# shellcheck shell=bash
# For the entrypoints of docker/Dockerfile: what Docker cannot be told about a container's network.

# Docker's own default route leads to the machine that the containers run on; the way here is the router.
default_by() {
	ip route replace default via "$1"
}

# Become USER for good, with the capabilities named and no other right: as_user USER [CAPABILITY...] -- WORDS
as_user() {
	local user=$1 kept=-all
	shift
	while [ "$1" != -- ]; do
		kept+=",+$1"
		shift
	done
	shift
	exec setpriv --reuid "$user" --regid "$(id -g "$user")" --clear-groups --inh-caps "$kept" --ambient-caps "$kept" -- "$@"
}
