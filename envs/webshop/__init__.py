"""WebShop: an online shop, an instruction, one purchase, in upstream's exact behaviour (Yao et al., 2022, MIT).

Nothing of upstream runs here: an engine of our own over its three data files.
"""
