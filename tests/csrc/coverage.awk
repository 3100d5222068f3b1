# gcovr's CSV as a table, of each file and of all. Fails when fewer than 90 % of all branches are taken.

function percent(taken, of) {
	return of == 0 ? 100 : 100 * taken / of
}

function row(name, lines_taken, lines, branches_taken, branches) {
	printf "%-20s %6d %7.1f %%", name, lines, percent(lines_taken, lines)
	printf " %9d %7.1f %%\n", branches, percent(branches_taken, branches)
}

NR == 1 {
	printf "%-20s %6s %9s %9s %9s\n", "file", "lines", "taken", "branches", "taken"
	next
}

{
	row($1, $3, $2, $6, $5)
	lines += $2; lines_taken += $3; branches += $5; branches_taken += $6
}

END {
	row("all", lines_taken, lines, branches_taken, branches)
	if (branches == 0 || branches_taken < 0.9 * branches) {
		print "coverage: fewer than 90 % of the branches are taken by tests" > "/dev/stderr"
		exit 1
	}
}
