"""The query subset: what it answers it answers as the service does, and what is outside is refused with 400.

Inside: SELECT *, lists with AS, VALUE, DISTINCT, TOP; FROM alias, FROM x IN alias.path, JOIN over arrays; WHERE with
parameters, comparison, IN, BETWEEN, AND/OR/NOT in three-valued logic, arithmetic, ||, ?? and ?:, EXISTS; ORDER BY paths
that the indexing policy serves; OFFSET/LIMIT; COUNT, SUM, MIN, MAX, AVG; the functions in `functions.py`.
Outside: GROUP BY, LIKE, other subqueries, bitwise operators, user-defined, spatial, date and vector functions.
"""
